"""The table of a promotion: text, Markdown and JSON."""

import re

import pytest

from gate_registry import ACTOR, make_side
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.compiler.gates.promotion import NOT_RUN, verdict
from infinity_v3.compiler.gates.table import (
    PromotionReport,
    escape,
    headline,
    to_document,
    to_markdown,
    to_text,
)

PASSED = GateFigure(
    gate="parity",
    subject="cpu",
    current=None,
    candidate="passed",
    bound="passed",
    passed=True,
)
FAILED = GateFigure(
    gate="max-p50-slowdown",
    subject="cpu -> cpu-2",
    current="1 ms",
    candidate="1.5 ms",
    bound="<= 1.1",
    passed=False,
    detail="ratio 1.500 | *95 %* interval\n`1.4` to <1.6>",
)
SKIPPED = GateFigure(
    gate="min-golden-agreement",
    subject="golden.jsonl",
    current=None,
    candidate=None,
    bound=">= 1",
    passed=False,
    detail=NOT_RUN,
)


def report(*figures: GateFigure, event: int | None = None, **fields: bool) -> PromotionReport:
    return PromotionReport(
        channel="prod",
        candidate=make_side("2.0"),
        current=make_side("1.0"),
        actor=ACTOR,
        policy="ab" * 32,
        golden=None,
        figures=figures,
        is_ungated=fields.get("is_ungated", False),
        is_dry_run=fields.get("is_dry_run", False),
        event=event,
    )


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (report(PASSED, event=7), "promoted, event 7"),
        (report(event=7, is_ungated=True), "promoted without gates, event 7"),
        (report(PASSED, is_dry_run=True), "would be promoted"),
        (report(is_dry_run=True, is_ungated=True), "would be promoted without gates"),
        (report(), "it is there already, nothing changed"),
        (report(FAILED, SKIPPED, FAILED), "refused, failed: max-p50-slowdown"),
    ],
)
def test_the_verdict_in_one_line(found: PromotionReport, line: str) -> None:
    assert headline(found) == f"fake-encoder 2.0 to prod: {line}"


def test_text_is_aligned_and_shows_details() -> None:
    assert to_text(report(PASSED, FAILED, SKIPPED), is_colored=False) == (
        "fake-encoder 2.0 to prod: refused, failed: max-p50-slowdown\n"
        f"  current    1.0 sha256:{'10':0>64}\n"
        f"  candidate  2.0 sha256:{'20':0>64}\n"
        "\n"
        "gate                  subject       current  candidate  bound   verdict\n"
        "parity                cpu           -        passed     passed  passed\n"
        "max-p50-slowdown      cpu -> cpu-2  1 ms     1.5 ms     <= 1.1  failed\n"
        "  ratio 1.500 | *95 %* interval `1.4` to <1.6>\n"
        "min-golden-agreement  golden.jsonl  -        -          >= 1    not run\n"
        "  not run: a gate above failed\n"
    )


def test_colours_change_nothing_else() -> None:
    found = report(PASSED, FAILED, SKIPPED)
    colored = to_text(found, is_colored=True)
    assert "\x1b[32mpassed\x1b[0m" in colored
    assert "\x1b[31mfailed\x1b[0m" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == to_text(found, is_colored=False)


def test_no_control_character_reaches_a_terminal() -> None:
    evil = GateFigure(
        gate="parity",
        subject="a\x1b[2J",
        current=None,
        candidate="x\ny",
        bound="passed",
        passed=False,
        detail="\x07\u2028",
    )
    text = to_text(report(evil), is_colored=False)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(text.splitlines()) == 7


def test_markdown_is_a_table_of_github() -> None:
    assert to_markdown(report(PASSED, FAILED, SKIPPED)).splitlines() == [
        "**\u274c fake-encoder 2.0 to prod: refused, failed: max-p50-slowdown**",
        "",
        "current 1.0 `000000000000`, candidate 2.0 `000000000000`",
        "",
        "| gate | subject | current | candidate | bound | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
        "| parity | cpu | - | passed | passed | \u2705 passed |",
        "| max-p50-slowdown | cpu -\\> cpu-2 | 1 ms | 1.5 ms | \\<= 1.1 | \u274c failed<br>"
        "ratio 1.500 \\| \\*95 %\\* interval \\`1.4\\` to \\<1.6\\> |",
        "| min-golden-agreement | golden.jsonl | - | - | \\>= 1 | \u26aa not run<br>"
        "not run: a gate above failed |",
    ]


def test_every_row_of_markdown_has_as_many_cells_as_the_header() -> None:
    evil = GateFigure(
        gate="a|b", subject="c\\|d", current="e\nf", candidate="|", bound="||", passed=True
    )
    *_, header, rule, row = to_markdown(report(evil)).splitlines()
    cells = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in (header, rule, row)]
    assert cells == [7, 7, 7]


@pytest.mark.parametrize("text", ["<script>", "[a](b)", "**b**", "`c`", "#1", "~~d~~", "@team"])
def test_markdown_is_escaped(text: str) -> None:
    escaped = escape(text)
    assert re.sub(r"\\(.)", r"\1", escaped) == text
    assert re.fullmatch(r"(?:\\.|[^\\`*_{}\[\]<>()#!|~@])*", escaped)


def test_json_says_the_same() -> None:
    document = to_document(report(PASSED, FAILED, SKIPPED))
    assert document["passed"] is False
    assert document["failed"] == ["max-p50-slowdown"]
    assert document["current"] == {"version": "1.0", "id": f"sha256:{'10':0>64}"}
    gates = document["gates"]
    assert isinstance(gates, list)
    assert [gate["verdict"] for gate in gates] == ["passed", "failed", "not run"]
    assert gates[1]["bound"] == "<= 1.1"
    assert [verdict(figure) for figure in (PASSED, FAILED, SKIPPED)] == [
        gate["verdict"] for gate in gates
    ]
