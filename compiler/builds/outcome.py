"""How the build of one model ended, and what a whole run's exit code follows from."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from infinity_v3.artifacts.errors import (
    GateFailedError,
    InfinityError,
    RefusedError,
    RunFailedError,
    UsageError,
)
from infinity_v3.artifacts.registry.records import GateFigure

SEVERITY: tuple[type[InfinityError], ...] = (
    RefusedError,
    GateFailedError,
    UsageError,
    RunFailedError,
)
"""Worst first: what must not be used, what is not good enough, what was asked for wrongly, and last
what may go well when it is tried again."""
_RUN_FAILED = 1


class Result(str, Enum):
    """In one word."""

    BUILT = "built"
    SKIPPED = "skipped"
    FAILED = "failed"
    REFUSED = "refused"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one `[[model]]`.

    Attributes:
        title: name and version as shown; the version as written where no key could be had.
        exit_code: 0 when the artifact is where it should be and passed its gates.
        message: one sentence; "" = nothing to say.
        build_key: 64 hex digits; None = the inputs could not be read.
        artifact_id: `sha256:<64 hex>`; None = there is no artifact.
        num_bytes: of all its files.
        duration_s: of everything that was run for it; 0 when nothing was.
        worst: the parity figure nearest to its bound, in words; None where there is none.
        gates: what the gates found.
        log: last lines of what its processes said, where it failed.
        path: the artifact's directory; None = it lies in the registry only, or nowhere.
        push_to: the channel that is left to promote to.
    """

    name: str
    version: str
    result: Result
    exit_code: int = 0
    message: str = ""
    build_key: str | None = None
    artifact_id: str | None = None
    num_bytes: int | None = None
    duration_s: float = 0.0
    worst: str | None = None
    gates: tuple[GateFigure, ...] = ()
    log: tuple[str, ...] = ()
    path: Path | None = None
    push_to: str | None = None

    @property
    def title(self) -> str:
        """Name and version, as a reference is written."""
        return f"{self.name}=={self.version}"

    def __str__(self) -> str:
        """The result, and why where there is a why."""
        return f"{self.result.value}: {self.message}" if self.message else self.result.value

    @property
    def is_bad(self) -> bool:
        """Whether the run has to say so with its exit code."""
        return self.exit_code != 0


def result_of(exit_code: int) -> Result:
    """Return the word for what ended with an exit code other than 0."""
    is_refused = exit_code in (RefusedError.exit_code, GateFailedError.exit_code)
    return Result.REFUSED if is_refused else Result.FAILED


def worst_error(outcomes: Iterable[Outcome]) -> InfinityError | None:
    """Return the error that a run ends with, None where all went well.

    The codes in the order of their weight are 3, 4, 2, 1: a job that tries again on 1 does so only
    where nothing else is wrong.
    """
    bad = [outcome for outcome in outcomes if outcome.is_bad]
    if not bad:
        return None
    codes = {outcome.exit_code for outcome in bad}
    kind = next((error for error in SEVERITY if error.exit_code in codes), RunFailedError)
    first = next((o for o in bad if o.exit_code == kind.exit_code), bad[0])
    more = f", and {len(bad) - 1} more above" if len(bad) > 1 else ""
    return kind(f"{first.title}: {first.message}{more}")


def error_code(exit_code: int) -> int:
    """Map the exit code of a child to one of ours: whatever is not known failed at run time."""
    known = {error.exit_code for error in SEVERITY}
    return exit_code if exit_code in known else _RUN_FAILED
