"""The licence in the front matter of a checkpoint's README.

Parses no YAML beyond that line.
"""

from pathlib import Path

_MAX_FRONT_BYTES = 64 * 1024


def read_license(file: Path) -> str | None:
    """The value of a plain `license: NAME` line, None when the README has none or can't be read.

    A licence written as a list or over several lines counts as not stated.
    """
    for line in _front_matter(file):
        key, separator, value = line.partition(":")
        if separator and key == "license":
            return _plain(value)
    return None


def _front_matter(file: Path) -> list[str]:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_FRONT_BYTES)
    except OSError:
        return []
    lines = content.decode("utf-8", "replace").lstrip("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return []
    ends = [index for index, line in enumerate(lines[1:], start=1) if line.rstrip() == "---"]
    return lines[1 : ends[0]] if ends else []


def _plain(value: str) -> str | None:
    text = value.split(" #")[0].strip().strip("\"'")
    is_plain = text != "" and text.isprintable() and text[0] not in "[{|>&*!-" and len(text) <= 100
    return text if is_plain else None
