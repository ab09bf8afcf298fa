"""The table that a reviewer sees, for terminals, for programs and for a pull request.

Knows nothing of how a figure was found.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.compiler.gates.promotion import Side, verdict
from infinity_v3.compiler.registry.output import short_id

COLUMNS = ("gate", "subject", "current", "candidate", "bound", "verdict")
NOTHING = "-"
_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"
_MARKS = {"passed": "\u2705", "failed": "\u274c", "not run": "\u26aa"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#!|~@])")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionReport:
    """How a promotion ended.

    Attributes:
        policy: sha256 of policy.toml; None = there is none.
        golden: sha256 of the golden requests that were used; None = there were none.
        event: number of the event that moved the channel; None = it was not moved.
    """

    channel: str
    candidate: Side
    current: Side | None
    actor: str
    policy: str | None
    golden: str | None
    figures: tuple[GateFigure, ...]
    is_ungated: bool
    is_dry_run: bool
    event: int | None = None

    @property
    def failed(self) -> tuple[str, ...]:
        """Gates that failed, each once, in the table's order."""
        failed = (f.gate for f in self.figures if verdict(f) == "failed")
        return tuple(dict.fromkeys(failed))


def headline(report: PromotionReport) -> str:
    """The verdict in one line."""
    what = f"{report.candidate.name} {report.candidate.version} to {report.channel}"
    if report.failed:
        return f"{what}: refused, failed: {', '.join(report.failed)}"
    ungated = " without gates" if report.is_ungated else ""
    if report.is_dry_run:
        return f"{what}: would be promoted{ungated}"
    if report.event is None:
        return f"{what}: it is there already, nothing changed"
    return f"{what}: promoted{ungated}, event {report.event}"


def to_document(report: PromotionReport) -> dict[str, object]:
    """The JSON document of `promote --json`."""
    return {
        "name": report.candidate.name,
        "channel": report.channel,
        "candidate": _side(report.candidate),
        "current": None if report.current is None else _side(report.current),
        "actor": report.actor,
        "policy": report.policy,
        "golden": report.golden,
        "passed": not report.failed,
        "failed": list(report.failed),
        "ungated": report.is_ungated,
        "dry_run": report.is_dry_run,
        "event": report.event,
        "gates": [{**asdict(figure), "verdict": verdict(figure)} for figure in report.figures],
    }


def to_text(report: PromotionReport, *, is_colored: bool) -> str:
    """An aligned table, with a figure's detail in the line below it."""
    lines = [headline(report), f"  current    {_shown(report.current)}"]
    lines.append(f"  candidate  {_shown(report.candidate)}")
    if report.figures:
        lines += ["", *_aligned(report.figures, is_colored)]
    return "\n".join(lines) + "\n"


def to_markdown(report: PromotionReport) -> str:
    """GitHub-flavoured Markdown, for a comment on a pull request."""
    mark = _MARKS["failed" if report.failed else "passed"]
    lines = [
        f"**{mark} {escape(headline(report))}**",
        "",
        f"current {_short(report.current)}, candidate {_short(report.candidate)}",
    ]
    if report.figures:
        lines += ["", _row(COLUMNS), _row(["---"] * len(COLUMNS))]
        lines += [_row(_marked(figure)) for figure in report.figures]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Make Markdown show `text` as it is, within one cell and on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(text).split()))


def _cells(figure: GateFigure) -> tuple[str, ...]:
    cells = (figure.gate, figure.subject, figure.current, figure.candidate, figure.bound)
    return (*(plain(cell or NOTHING) for cell in cells), verdict(figure))


def plain(text: str) -> str:
    """One line without control characters: what a server or a file said may hold any."""
    return "".join(char if char.isprintable() else " " for char in text)


def _aligned(figures: Sequence[GateFigure], is_colored: bool) -> list[str]:
    rows = [COLUMNS, *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(COLUMNS, widths, strict=True))]
    lines[0] = lines[0].rstrip()
    for figure in figures:
        *cells, last = _cells(figure)
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        lines.append("  ".join([*padded, _colored(last, figure.passed) if is_colored else last]))
        if figure.detail:
            lines.append(f"  {plain(figure.detail)}")
    return lines


def _colored(word: str, passed: bool) -> str:
    return f"{_GREEN if passed else _RED}{word}{_PLAIN}"


def _marked(figure: GateFigure) -> list[str]:
    *cells, word = (escape(cell) for cell in _cells(figure))
    detail = f"<br>{escape(figure.detail)}" if figure.detail else ""
    return [*cells, f"{_MARKS[verdict(figure)]} {word}{detail}"]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _side(side: Side) -> Mapping[str, str]:
    return {"version": side.version, "id": side.id}


def _shown(side: Side | None) -> str:
    return "nothing" if side is None else f"{side.version} {side.id}"


def _short(side: Side | None) -> str:
    return "nothing" if side is None else f"{escape(side.version)} `{short_id(side.id)}`"
