"""Allowed actors: who may move the channel. Knows nothing of how an actor is established."""

from collections.abc import Iterator

from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.compiler.gates.policy_values import UNVERIFIED
from infinity_v3.compiler.gates.promotion import Promotion

ACTORS = "actors"


def actor_figures(promotion: Promotion) -> Iterator[GateFigure]:
    """One figure, where the policy names actors."""
    actors = promotion.policy.actors
    if not actors:
        return
    is_allowed = promotion.actor in actors
    yield GateFigure(
        gate=ACTORS,
        subject="who promotes",
        current=None,
        candidate=promotion.actor,
        bound=f"one of {', '.join(actors)}",
        passed=is_allowed,
        detail="" if is_allowed else _remedy(promotion.actor),
    )


def _remedy(actor: str) -> str:
    if actor.startswith(UNVERIFIED):
        return "promote with --sign-key FILE of an allowed key, or as an allowed user"
    return "promote with --sign-key FILE of an allowed key"
