"""What a report says of where its figures come from."""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from infinity_v3.artifacts.host import detect_host


def run_origin(root: Path, **more: object) -> Mapping[str, object]:
    """Commit, date and machine; a tree with changes that are not committed says so."""
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": f"{commit} with local changes" if changed else commit,
        "date": time.strftime("%Y-%m-%d"),
        "cpu": detect_host().cpu_model,
        **more,
    }


def origin_line(origin: Mapping[str, object]) -> str:
    """The same as one sentence under a report's heading."""
    facts = ", ".join(f"{name} {value}" for name, value in origin.items())
    return facts[:1].upper() + facts[1:] + "."


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else "unknown"
