"""Runs every family under every task for every target of this host, and writes docs/models.md.

A failed cell does not end the run; nothing is written unless all pass.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one cell: a row, or why there is none."""

    cell: Cell
    row: Row | None
    failure: str
    seconds: float


def main() -> int:
    """Run the matrix; 1 when a cell failed."""
    arguments = _arguments()
    cells = [cell for cell in all_cells() if not arguments.only or cell.name in arguments.only]
    outcomes = []
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        for number, outcome in enumerate(pool.map(run_cell, cells), 1):
            outcomes.append(outcome)
            print(f"[{number}/{len(cells)}] {_said(outcome)}", flush=True)
    failed = [outcome.cell.name for outcome in outcomes if outcome.row is None]
    if failed:
        print(f"{len(failed)} of {len(cells)} failed: {', '.join(failed)}")
        return 1
    if not arguments.only:
        rows = [outcome.row for outcome in outcomes if outcome.row is not None]
        PAGE.write_text(render(SPECS, rows, [t.name for t in HOST_TARGETS], _origin()))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


def run_cell(cell: Cell) -> Outcome:
    """Run one cell in this process; whatever happens becomes its outcome."""
    started = time.monotonic()
    try:
        row, failure = _run(cell), ""
    except Exception as error:  # a failed cell must not hide the others
        row, failure = None, f"{type(error).__name__}: {error}"
    return Outcome(cell=cell, row=row, failure=failure, seconds=time.monotonic() - started)


def _said(outcome: Outcome) -> str:
    figures = outcome.row.figures.values() if outcome.row else (f"FAILED: {outcome.failure}",)
    return f"{outcome.cell.name}: {' '.join(figures)} ({outcome.seconds:.0f} s)"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time")
    names = [cell.name for cell in all_cells()]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="CELL", help="run this cell alone"
    )
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
