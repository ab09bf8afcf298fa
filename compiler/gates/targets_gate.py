"""Required targets: names that the artifact must have. Knows nothing of what they are."""

from collections.abc import Iterator

from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.gates.promotion import Promotion, Side

REQUIRED_TARGETS = "required-targets"


def target_figures(promotion: Promotion) -> Iterator[GateFigure]:
    """A figure per required target."""
    names = _names(promotion.candidate)
    for name in promotion.policy.required_targets:
        is_there = name in names
        current = promotion.current
        yield GateFigure(
            gate=REQUIRED_TARGETS,
            subject=name,
            current=None if current is None else _word(name in _names(current)),
            candidate=_word(is_there),
            bound="present",
            passed=is_there,
            detail="" if is_there else f"targets: {', '.join(names)}{nearest(name, names)}",
        )


def _names(side: Side) -> tuple[str, ...]:
    return tuple(target.name for target in side.manifest.targets)


def _word(is_there: bool) -> str:
    return "present" if is_there else "absent"
