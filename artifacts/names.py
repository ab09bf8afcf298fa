"""Rules for names, relative paths and digests. Knows nothing of manifests or the file system."""

import re

NAME_RULE = "1 to 100 of A-Z a-z 0-9 . _ + -, the first one a letter or a digit"
MAX_PATH_CHARS = 1000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_name(value: str) -> bool:
    """Tell whether `value` may name an artifact, version, channel, target, precision or label."""
    return _NAME.fullmatch(value) is not None


def is_sha256(value: str) -> bool:
    """Tell whether `value` is 64 lower-case hex digits."""
    return _SHA256.fullmatch(value) is not None


def path_problem(path: str) -> str | None:
    """Say why `path` may not stand in a manifest, or None when it may.

    A good path is relative, uses `/`, and cannot leave the directory it is joined to.
    """
    parts = path.split("/")
    problems = (
        (not path, "an empty path"),
        (path.startswith("/"), "an absolute path"),
        ("\\" in path, "a backslash"),
        (not path.isprintable(), "an unprintable character"),
        (".." in parts, "a '..' part"),
        ("." in parts or "" in parts, "an empty or '.' part"),
        (len(path) > MAX_PATH_CHARS, f"more than {MAX_PATH_CHARS} characters"),
    )
    return next((problem for is_wrong, problem in problems if is_wrong), None)
