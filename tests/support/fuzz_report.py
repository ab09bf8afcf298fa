"""The report of a fuzz run as Markdown and as JSON. Knows nothing of how the run went about."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fuzz_campaigns import Tally
from run_origin import origin_line


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMemory:
    """Resident memory of one server after warming up and at the end."""

    server: str
    before_mib: float
    after_mib: float


@dataclass(slots=True, kw_only=True)
class FuzzOutcome:
    """Everything a run found."""

    tally: Tally
    memory: list[LiveMemory] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_json(self) -> Mapping[str, object]:
        return {
            "distinct_inputs": self.tally.num_inputs,
            "distinct_inputs_to_decision_routes": self.tally.num_decisions,
            "sent": self.tally.num_sent,
            "codecs": dict(self.tally.codecs),
            "replies": {path: dict(found) for path, found in _by_path(self.tally).items()},
            "rss_mib": {one.server: [one.before_mib, one.after_mib] for one in self.memory},
            "problems": self.problems,
        }


def render(
    outcome: FuzzOutcome, origin: Mapping[str, object], wanted: int, wanted_decisions: int
) -> str:
    """The report."""
    head = _head(outcome, origin, wanted, wanted_decisions)
    return "\n".join([*head, *_tables(outcome), ""])


def _head(
    outcome: FuzzOutcome, origin: Mapping[str, object], wanted: int, wanted_decisions: int
) -> Iterator[str]:
    tally = outcome.tally
    verdict = "**FAILED**" if outcome.problems else "Passed"
    yield from ("# Fuzz", "", origin_line(origin), "")
    yield (
        f"{verdict}: {tally.num_inputs:,} distinct inputs of {wanted:,} wanted, "
        f"{tally.num_sent:,} with repetitions; of them {tally.num_decisions:,} of "
        f"{wanted_decisions:,} wanted to decision routes. Written by `make fuzz`."
    )
    yield from (
        "",
        "Documents are made from the body type of every POST route, right and spoilt, and written "
        "as JSON and as MessagePack, plain and compressed, broken byte by byte and under odd "
        "headers. Raw bytes go to the codecs, which are compared with other implementations. An "
        "answer must have a status of the contract below 500, an error of its route's shape, "
        "finite numbers, and the same status however the document was written. A hang of 20 s "
        "fails.",
        "",
        "Decision routes are asked of a real decision model, in process and behind a real server. "
        "Bodies have values changed, moved, removed and repeated, keys there twice, numbers beyond "
        "any width, lone surrogates, up to 100,000 levels, up to 10,000 questions, options and "
        "levels. Every 200 is worked out again from what was sent: ids, options, levels, sums, "
        "confidences, score.",
    )
    for problem in outcome.problems:
        yield from ("", "```", problem[:4000], "```")


def _tables(outcome: FuzzOutcome) -> Iterator[str]:
    by_path = _by_path(outcome.tally)
    statuses = sorted({status for found in by_path.values() for status in found})
    yield from ("", "## Answers", "", "| path | " + " | ".join(map(str, statuses)) + " |")
    yield "|---|" + "---:|" * len(statuses)
    for path, found in sorted(by_path.items()):
        yield f"| `{path}` | " + " | ".join(f"{found[status]:,}" for status in statuses) + " |"
    yield from ("", "## Codecs", "", "| codec | inputs |", "|---|---:|")
    for name, count in sorted(outcome.tally.codecs.items()):
        yield f"| {name} | {count:,} |"
    yield from ("", "## Memory of the real servers", "", "| model | MiB warm | MiB at the end |")
    yield "|---|---:|---:|"
    for one in outcome.memory:
        yield f"| {one.server} | {one.before_mib:.0f} | {one.after_mib:.0f} |"


def _by_path(tally: Tally) -> Mapping[str, Counter[int]]:
    found: dict[str, Counter[int]] = {}
    for (path, status), count in tally.replies.items():
        found.setdefault(path, Counter())[status] += count
    return found
