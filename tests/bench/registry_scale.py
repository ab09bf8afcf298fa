"""Measures a local registry of many versions of one model that share their weights.

    python tests/bench/registry_scale.py [--versions 500] [--megabytes 100]

Ends with 1 when a push sends more than what is new, when listing or resolving takes more than
100 ms, or when gc removes anything but the files of retired versions.
"""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from many_versions import run_scale

MAX_LOOK_S = 0.1


def main() -> int:
    """Print the figures as JSON; 1 when a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=500)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="infinity-scale-") as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        figures = run_scale(
            Path(name),
            num_versions=options.versions,
            weight_bytes=options.megabytes * 1_000_000,
            rounds=options.rounds,
        )
    print(json.dumps(asdict(figures), indent=2))
    holds = (
        figures.last_bytes == figures.expected_last_bytes
        and max(figures.list_s, figures.resolve_s) <= MAX_LOOK_S
        and figures.is_gc_exact
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
