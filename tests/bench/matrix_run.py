"""Runs every family under every task for every target of this host, and writes docs/models.md.

A failed cell does not end the run; nothing is written unless all pass.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Precision
from infinity_v3.compiler.cpu_targets import CpuTarget
from infinity_v3.model_specs.registry import SPECS
from matrix import EXPERT_FAMILIES, TASKS, Cell, all_cells, compare_served, compile_cell
from matrix_page import NOT_BUILT, Row, figure_of, render
from tiny_artifacts import HOST_TARGETS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "models.md"


def main() -> int:
    """Run the matrix; 1 when a cell failed."""
    arguments = _arguments()
    cells = [cell for cell in all_cells() if not arguments.only or cell.name in arguments.only]
    rows, failures = [], []
    for number, cell in enumerate(cells, 1):
        started = time.monotonic()
        try:
            rows.append(_run(cell))
            said = " ".join(rows[-1].figures.values())
        except Exception as error:  # a failed cell must not hide the others
            failures.append(cell.name)
            said = f"FAILED: {type(error).__name__}: {error}"
        seconds = time.monotonic() - started
        print(f"[{number}/{len(cells)}] {cell.name}: {said} ({seconds:.0f} s)", flush=True)
    if failures:
        print(f"{len(failures)} of {len(cells)} failed: {', '.join(failures)}")
        return 1
    if not arguments.only:
        PAGE.write_text(render(SPECS, rows, [t.name for t in HOST_TARGETS], _origin()))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="CELL", help="run this cell alone")
    return parser.parse_args()


def _run(cell: Cell) -> Row:
    recipe = TASKS[cell.task]
    with tempfile.TemporaryDirectory(prefix="infinity-matrix-") as name:
        folder = Path(name)
        checkpoint = recipe.make(cell.family, folder / "checkpoint")
        artifact = folder / "artifact"
        compile_cell(cell, checkpoint, artifact, [target.name for target in _targets(cell)])
        compare_served(cell, checkpoint, artifact)
        parity = json.loads((artifact / "build.json").read_text())["parity"]
    figures = {target.name: NOT_BUILT for target in HOST_TARGETS}
    for target in _targets(cell):
        is_half = target.precision is not Precision.FLOAT32
        figures[target.name] = figure_of(parity[target.name], is_half=is_half)
    return Row(
        checkpoint=cell.family, task=cell.task, oracle=recipe.checked_against, figures=figures
    )


def _targets(cell: Cell) -> list[CpuTarget]:
    is_float32_only = cell.family in EXPERT_FAMILIES
    return [t for t in HOST_TARGETS if t.precision is Precision.FLOAT32 or not is_float32_only]


def _origin() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return f"Commit {commit}, {time.strftime('%Y-%m-%d')}, {detect_host().cpu_model}.\n"


if __name__ == "__main__":
    sys.exit(main())
