"""What the server tells about an artifact that came from a registry. Does nothing itself."""

from dataclasses import dataclass
from enum import Enum

from infinity_v3.server.pulled import PulledArtifact


class NextState(str, Enum):
    """What became of an artifact that a watched channel was moved to."""

    LOADING = "loading"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextArtifact:
    """What a watched channel points to while something else is served.

    `reason`: why it failed; None while it loads.
    """

    id: str
    version: str | None
    event: int | None
    state: NextState
    reason: str | None = None

    @classmethod
    def of(
        cls, pulled: PulledArtifact, state: NextState, reason: str | None = None
    ) -> "NextArtifact":
        """Say where a pulled artifact stands."""
        return cls(
            id=pulled.id, version=pulled.version, event=pulled.event, state=state, reason=reason
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOrigin:
    """Where what is served came from.

    Attributes:
        reference: as configured.
        version: see `PulledArtifact`, as `channel` and `event`.
        is_watched: moves of the channel are followed.
        next: what it points to now, unless that is served.
        trouble: why the channel cannot be followed just now; None = it can.
    """

    reference: str
    version: str | None
    channel: str | None
    event: int | None
    is_watched: bool
    next: NextArtifact | None = None
    trouble: str | None = None

    @classmethod
    def of(cls, pulled: PulledArtifact, reference: str, *, is_watched: bool) -> "RegistryOrigin":
        """The origin of what was pulled and is served."""
        return cls(
            reference=reference,
            version=pulled.version,
            channel=pulled.channel,
            event=pulled.event,
            is_watched=is_watched,
        )

    @property
    def is_behind(self) -> bool:
        """Something else is served than the channel points to, as far as is known."""
        return self.next is not None or self.trouble is not None

    def as_document(self) -> dict[str, object]:
        """As /info shows it."""
        following = self.next
        return {
            "reference": self.reference,
            "version": self.version,
            "channel": self.channel,
            "event": self.event,
            "watched": self.is_watched,
            "error": self.trouble,
            "next": None
            if following is None
            else {
                "id": following.id,
                "version": following.version,
                "event": following.event,
                "state": following.state.value,
                "reason": following.reason,
            },
        }
