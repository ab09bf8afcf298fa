"""The report of load and faults: Markdown, JSON and a picture. Knows nothing of servers."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fault_claims import Scenario
from load_chart import Panel, Points, draw
from load_client import Sent
from load_scenario import MAX_QUEUE_TOKENS, LoadFigures
from run_origin import origin_line

_BIN_S = 1.0


def render(
    scenarios: Sequence[Scenario], load: LoadFigures | None, origin: Mapping[str, object]
) -> str:
    """The report; the picture is expected beside it as faults.svg."""
    return "\n".join([*_head(scenarios, origin), *_load(load), *_scenarios(scenarios), ""])


def as_json(
    scenarios: Sequence[Scenario], load: LoadFigures | None, origin: Mapping[str, object]
) -> Mapping[str, object]:
    """The same for machines."""
    return {
        **origin,
        "failures": [failure for scenario in scenarios for failure in scenario.failures],
        "load": _facts(load),
        "scenarios": {
            scenario.name: {
                "seconds": round(scenario.seconds, 3),
                "claims": [
                    {"text": claim.text, "found": claim.found, "holds": claim.holds}
                    for claim in scenario.claims
                ],
            }
            for scenario in scenarios
        },
    }


def picture(load: LoadFigures) -> str:
    """Latency, queue and memory over time."""
    accepted = [one for one in load.sent if one.status == 200]
    samples = load.samples
    return draw(
        [
            Panel(
                title="seconds until the answer, by planned time",
                curves={"p50 accepted": _curve(accepted, 50), "p99 accepted": _curve(accepted, 99)},
                limit=(f"bound for p99: {load.bound_s:.3g} s", load.bound_s),
            ),
            Panel(
                title="answers per second",
                curves={
                    "200": _rate(load.sent, 200),
                    "429": _rate(load.sent, 429),
                },
            ),
            Panel(
                title="admitted tokens",
                curves={"queue tokens": [(s.at_s, s.queue_tokens) for s in samples]},
                limit=(f"--max-queue-tokens {MAX_QUEUE_TOKENS}", MAX_QUEUE_TOKENS),
            ),
            Panel(
                title="resident memory, MB",
                curves={"RSS": [(s.at_s, s.rss_mb) for s in samples]},
            ),
        ]
    )


def _binned(sent: Sequence[Sent]) -> Mapping[int, list[float]]:
    bins: dict[int, list[float]] = {}
    for one in sent:
        bins.setdefault(int(one.planned_s / _BIN_S), []).append(one.latency_s)
    return dict(sorted(bins.items()))


def _curve(sent: Sequence[Sent], share: int) -> Points:
    return [(at * _BIN_S, float(np.percentile(v, share))) for at, v in _binned(sent).items()]


def _rate(sent: Sequence[Sent], status: int) -> Points:
    """Answers of one status, also where there were none."""
    found = _binned([one for one in sent if one.status == status])
    return [(at * _BIN_S, len(found.get(at, ())) / _BIN_S) for at in _binned(sent)]


def _head(scenarios: Sequence[Scenario], origin: Mapping[str, object]) -> Iterator[str]:
    num_claims = sum(len(scenario.claims) for scenario in scenarios)
    failures = [failure for scenario in scenarios for failure in scenario.failures]
    verdict = f"**{len(failures)} claims do not hold.**" if failures else "All hold."
    yield from ("# Load and faults", "", origin_line(origin), "")
    yield f"{len(scenarios)} scenarios, {num_claims} claims. {verdict} Written by `make faults`."
    for failure in failures:
        yield f"* {failure}"


def _load(load: LoadFigures | None) -> Iterator[str]:
    if load is None:
        return
    yield from (
        "",
        "## Overload",
        "",
        "![latency, answers, queue and memory over time](faults.svg)",
    )
    yield from (
        "",
        "Requests leave at Poisson times whether or not earlier ones were answered. A latency "
        "counts from the planned time, and the generator's own lateness is listed beside it, so a "
        "slow server cannot slow its load down unseen. The bound of the p99 is the queue limit "
        "divided by the slowest token rate of any five seconds, plus a quarter of a second for "
        "what is outside the queue: reading, tokenising, writing, waiting for the shared CPU.",
        "",
        "| figure | value |",
        "|---|---:|",
    )
    for name, value in _facts(load).items():
        yield f"| {name} | {value} |"


def _facts(load: LoadFigures | None) -> Mapping[str, object]:
    if load is None:
        return {}
    facts: dict[str, object] = {
        "capacity, requests/s": round(load.capacity_per_s, 1),
        "sent, requests/s": round(load.rate_per_s, 1),
        "duration, s": load.duration_s,
        "requests": len(load.sent),
        **{f"answers {status}": count for status, count in sorted(load.statuses.items())},
        "slowest tokens/s": round(load.tokens_per_s),
        "bound of p99, s": round(load.bound_s, 3),
        "memory, MB per minute": round(load.slope_mb, 2),
    }
    return facts | {f"{name}, ms": round(1e3 * value, 1) for name, value in load.latency.items()}


def _scenarios(scenarios: Sequence[Scenario]) -> Iterator[str]:
    yield from ("", "## Claims")
    for scenario in scenarios:
        yield from (
            "",
            f"### {scenario.name}",
            "",
            f"{scenario.what} ({scenario.seconds:.1f} s)",
            "",
        )
        yield from ("| | claim | found |", "|---|---|---|")
        for claim in scenario.claims:
            mark = "yes" if claim.holds else "**NO**"
            yield f"| {mark} | {_cell(claim.text)} | {_cell(claim.found)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:600]
