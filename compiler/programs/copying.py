"""Copies an artifact's files into one that is being built. Knows nothing of what they mean."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from infinity_v3.artifacts.manifest import FileEntry
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed


def copy_files(root: Path, entries: Iterable[FileEntry], stage: Path) -> None:
    """Copy listed files of the artifact in `root`; those that are in `stage` already stay.

    Raises:
        RunFailedError: a file cannot be read.
    """
    for entry in entries:
        target = stage / entry.path
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with os_errors_as_run_failed("copy", root / entry.path):
            shutil.copyfile(root / entry.path, target)
