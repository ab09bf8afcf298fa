"""Load and faults against a real server: overload for minutes, then what clients do wrong.

    python tests/e2e/faults.py [--minutes 10] [--only NAME] [--quick] [--json FILE]

Ends with 1 when a claim does not hold. The report goes to docs/reports/faults.md, with its picture
beside it, unless --report names another file. INFINITY_TEST_MINILM_ARTIFACT names an artifact of
all-MiniLM-L6-v2 that is there; without it one is compiled.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from compiled import compile_checkpoint, minilm_checkpoint
from fault_claims import Scenario
from fault_report import as_json, picture, render
from fault_scenarios import run_faults
from load_plan import LoadMix, make_mix, make_texts
from load_process import split_cpus
from load_references import from_library
from load_scenario import LoadFigures, run_load
from run_origin import run_origin

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "docs" / "reports" / "faults.md"
NUM_TEXTS = 64
OVERLOAD = "overload"


def main() -> int:
    """Run all scenarios; 1 when a claim does not hold."""
    arguments = _arguments()
    started_s = time.monotonic()

    def say(text: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - started_s:5.0f} s] {text}\n")
        sys.stdout.flush()

    # Before the work: a tree that changes meanwhile is not the one that was measured.
    origin = run_origin(ROOT, cpus=split_cpus().sentence, minutes=arguments.minutes)
    with tempfile.TemporaryDirectory(prefix="infinity-faults-") as name:
        artifact = _artifact(Path(name), say)
        scenarios, load = _run(arguments, artifact, say)
    _write(arguments, scenarios, load, dict(origin))
    failures = [failure for scenario in scenarios for failure in scenario.failures]
    say(f"{len(scenarios)} scenarios, {len(failures)} claims do not hold; {arguments.report}")
    for failure in failures:
        say(f"FAILED {failure}")
    return 1 if failures or not scenarios else 0


def _run(
    arguments: argparse.Namespace, artifact: Path, say: Callable[[str], None]
) -> tuple[list[Scenario], LoadFigures | None]:
    mix = _mix(say)
    scenarios, load = [], None
    if arguments.only in OVERLOAD:
        scenario, load = run_load(
            artifact,
            mix,
            split_cpus(),
            duration_s=60 * arguments.minutes,
            seed=arguments.seed,
            say=say,
        )
        scenarios.append(scenario)
    is_long = not arguments.quick
    scenarios += run_faults(artifact, mix, is_long=is_long, say=say, only=arguments.only)
    return scenarios, load


def _mix(say: Callable[[str], None]) -> LoadMix:
    texts = make_texts(1, NUM_TEXTS)
    say(f"reference vectors of {len(texts)} texts")
    return make_mix(texts, from_library(texts), 2)


def _artifact(folder: Path, say: Callable[[str], None]) -> Path:
    given = os.environ.get("INFINITY_TEST_MINILM_ARTIFACT")
    if given:
        return Path(given)
    say("compiling all-MiniLM-L6-v2")
    artifact = folder / "all-MiniLM-L6-v2"
    compile_checkpoint(minilm_checkpoint(), artifact, "--name", "all-MiniLM-L6-v2")
    return artifact


def _write(
    arguments: argparse.Namespace,
    scenarios: list[Scenario],
    load: LoadFigures | None,
    origin: dict[str, object],
) -> None:
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(render(scenarios, load, origin))
    if load is not None:
        arguments.report.with_suffix(".svg").write_text(picture(load))
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(scenarios, load, origin), indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of overload")
    parser.add_argument(
        "--only", default="", metavar="NAME", help="scenarios whose name holds this"
    )
    parser.add_argument("--quick", action="store_true", help="short forms of the fault scenarios")
    parser.add_argument("--seed", type=int, default=5, help="of arrivals and requests")
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
