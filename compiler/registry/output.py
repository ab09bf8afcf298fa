"""How results of registry commands look: tables for people, one JSON document for programs."""

import json
import os
import sys
from collections.abc import Mapping, Sequence

from infinity_v3.compiler.progress import Progress, choose_progress

SHORT_ID_CHARS = 12


def short_id(identity: str) -> str:
    """The first 12 hex digits of an artifact id or digest."""
    return identity.removeprefix("sha256:")[:SHORT_ID_CHARS]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces apart; "" where there is no row."""
    if not rows:
        return ""
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join(padded) + "\n"


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """One fact per line, its name before it."""
    width = max((len(name) for name, _ in rows), default=0)
    return "".join(f"{name:<{width}}  {value}".rstrip() + "\n" for name, value in rows)


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 file", "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def print_result(document: Mapping[str, object], text: str, *, is_json: bool) -> None:
    """Write the one or the other to stdout."""
    # Escaped, because names of files need not be Unicode, and JSON has to be.
    sys.stdout.write(json.dumps(document) + "\n" if is_json else text)


def progress_of(*, is_json: bool) -> Progress:
    """Where a command reports to while it works."""
    return choose_progress(sys.stderr, is_silent=is_json, terminal=os.environ.get("TERM", ""))
