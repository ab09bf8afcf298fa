"""What gates look at: a candidate, what the channel points to now, and the policy. Does no I/O."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler.gates.policy import ChannelPolicy

NOT_RUN = "not run: a gate above failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an artifact says of itself.

    Attributes:
        build: content of build.json; None = it has none.
    """

    manifest: Manifest
    build: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side(Measured):
    """One version of a name; `id` is its artifact id, `sha256:<64 hex>`."""

    name: str
    version: str
    id: str


Fetch = Callable[[Side], Artifact]
"""Gives the verified directory of a version, downloading what is not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """A question to the gates: may `channel` move to `candidate`?

    Attributes:
        current: what the channel points to now; None = nothing.
        actor: id of the signing key, else `unverified:<user>`.
    """

    channel: str
    policy: ChannelPolicy
    candidate: Side
    current: Side | None
    actor: str


def verdict(figure: GateFigure) -> str:
    """A figure's verdict in a word or two."""
    if figure.passed:
        return "passed"
    return "not run" if figure.detail == NOT_RUN else "failed"


def not_run(gate: str, subject: str, bound: str) -> GateFigure:
    """The figure of a gate that runs the candidate, where one that only reads has failed."""
    return GateFigure(
        gate=gate,
        subject=subject,
        current=None,
        candidate=None,
        bound=bound,
        passed=False,
        detail=NOT_RUN,
    )
