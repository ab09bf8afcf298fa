"""What lies in a directory: regular files and directories only. Follows no link."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.digest import sha256_beneath
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.layout import UNLISTED_FILES
from infinity_v3.artifacts.manifest import FileEntry
from infinity_v3.artifacts.names import path_problem
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed

_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISCHR, "a character device"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Everything below a root by relative path with `/`; the root itself is the directory ""."""

    root: Path
    files: Mapping[str, os.stat_result]
    directories: Mapping[str, os.stat_result]


def scan_tree(root: Path) -> Tree:
    """List a directory without following links.

    Raises:
        RefusedError: a link, a special file, or a name that no manifest may hold.
        RunFailedError: a directory cannot be read.
    """
    files: dict[str, os.stat_result] = {}
    with os_errors_as_run_failed("read", root):
        directories = {"": root.stat()}
        pending = [""]
        while pending:
            prefix = pending.pop()
            for name, status in _list_directory(root, prefix):
                relative_path = f"{prefix}{name}"
                if stat.S_ISDIR(status.st_mode):
                    directories[relative_path] = status
                    pending.append(f"{relative_path}/")
                else:
                    files[relative_path] = status
    return Tree(root=root, files=files, directories=directories)


def describe_files(root: Path) -> tuple[FileEntry, ...]:
    """Hash every file below `root` that a manifest must list, sorted by path.

    Raises:
        RefusedError: something below `root` is not a regular file or directory.
        RunFailedError: a file cannot be read, or it changed meanwhile.
    """
    tree = scan_tree(root)
    return tuple(
        _describe_file(root, path) for path in sorted(tree.files) if path not in UNLISTED_FILES
    )


def _list_directory(root: Path, prefix: str) -> list[tuple[str, os.stat_result]]:
    with os.scandir(root / prefix) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    for name, status in found:
        _check_kind(root, f"{prefix}{name}", status)
    return found


def _check_kind(root: Path, relative_path: str, status: os.stat_result) -> None:
    kind = next((kind for is_kind, kind in _KINDS if is_kind(status.st_mode)), None)
    if kind is not None:
        raise RefusedError(
            f"{root}: {ascii(relative_path)[1:-1]}: expected regular files and directories only, "
            f"found {kind}; replace it by the file itself"
        )
    problem = path_problem(relative_path)
    if problem is not None:
        raise RefusedError(f"{root}: {relative_path!a}: its name has {problem}; remove it")


def _describe_file(root: Path, path: str) -> FileEntry:
    with os_errors_as_run_failed("read", root / path):
        digest, state = sha256_beneath(root, path)
        if state is None:
            raise OSError(None, "it changed while it was read")
    return FileEntry(path=path, num_bytes=state.num_bytes, sha256=digest)
