"""Required targets: names that the artifact must have. Knows nothing of what they are."""

from collections.abc import Iterable, Iterator

from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.gates.promotion import Measured, Promotion

REQUIRED_TARGETS = "required-targets"


def target_figures(promotion: Promotion) -> Iterator[GateFigure]:
    """A figure per required target."""
    wanted = promotion.policy.required_targets
    return required_figures(wanted, promotion.candidate.manifest, promotion.current)


def required_figures(
    wanted: Iterable[str], manifest: Manifest, current: Measured | None = None
) -> Iterator[GateFigure]:
    """A figure per wanted target; `current` is what it is shown beside, None = nothing."""
    names = _names(manifest)
    for name in wanted:
        is_there = name in names
        yield GateFigure(
            gate=REQUIRED_TARGETS,
            subject=name,
            current=None if current is None else _word(name in _names(current.manifest)),
            candidate=_word(is_there),
            bound="present",
            passed=is_there,
            detail="" if is_there else f"targets: {', '.join(names)}{nearest(name, names)}",
        )


def _names(manifest: Manifest) -> tuple[str, ...]:
    return tuple(target.name for target in manifest.targets)


def _word(is_there: bool) -> str:
    return "present" if is_there else "absent"
