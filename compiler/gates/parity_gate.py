"""Parity: what the manifest says passed, and the figures of build.json against the policy's bounds.

Runs nothing: the figures were found when the artifact was made.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.manifest import Graph, Target
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.compiler.gates.promotion import Measured, Promotion

PARITY = "parity"
MIN_COSINE = "min-cosine"
MAX_ABS = "max-abs"
PASSED = "passed"
_LOGITS = frozenset({"logits", "option_logits", "token_logits"})
"""Outputs without a direction: the cosine of one number says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The worst figure of one target, or why there is none."""

    value: float | None = None
    problem: str = ""


def parity_figures(promotion: Promotion) -> Iterator[GateFigure]:
    """A figure per target and bound; targets that only the channel's artifact has are left out."""
    for target in promotion.candidate.manifest.targets:
        yield _passed(promotion, target)
    policy = promotion.policy
    if policy.min_cosine is not None:
        for target in promotion.candidate.manifest.targets:
            yield bounded_figure(
                promotion.candidate, target, MIN_COSINE, policy.min_cosine, promotion.current
            )
    if policy.max_abs is not None:
        for target in promotion.candidate.manifest.targets:
            yield bounded_figure(
                promotion.candidate, target, MAX_ABS, policy.max_abs, promotion.current
            )


def bounded_figure(
    candidate: Measured, target: Target, gate: str, bound: float, current: Measured | None = None
) -> GateFigure:
    """Hold one target's worst figure against a bound.

    Args:
        candidate: whose figure is held.
        target: one of its targets.
        gate: MIN_COSINE or MAX_ABS.
        bound: what is asked for.
        current: what it is shown beside; None = nothing.
    """
    found = worst(candidate, target.name, gate)
    has_none = found.value is None and not found.problem
    is_cosine = gate == MIN_COSINE
    return GateFigure(
        gate=gate,
        subject=target.name,
        current=_shown_current(current, target.name, gate),
        candidate=_shown_against(found, bound, is_cosine),
        bound=f"{'>=' if is_cosine else '<='} {_shown_bound(bound)}",
        passed=has_none or _holds(found.value, bound, is_cosine),
        detail="no output of it is a vector" if has_none else found.problem,
    )


def worst(side: Measured, target_name: str, gate: str) -> Found:
    """The worst cosine or difference of a target to its reference, over all outputs.

    Args:
        side: whose build.json is read.
        target_name: one of its targets.
        gate: MIN_COSINE or MAX_ABS.
    """
    figures = _figures(side, target_name)
    if figures is None:
        return Found(problem=f"build.json has no parity figures of {target_name}")
    outputs = _compared(side.manifest.graph, gate)
    if not outputs:
        return Found()
    wanted = "min_cosine" if gate == MIN_COSINE else "max_abs"
    values = []
    for output in outputs:
        value = figures.get(f"{output}.{wanted}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return Found(problem=f"build.json lacks {output}.{wanted} of {target_name}")
        if not math.isfinite(value):
            return Found(problem=f"build.json: {output}.{wanted} of {target_name} is not finite")
        values.append(float(value))
    return Found(value=min(values) if gate == MIN_COSINE else max(values))


def _passed(promotion: Promotion, target: Target) -> GateFigure:
    current = _target_of(promotion.current, target.name)
    return GateFigure(
        gate=PARITY,
        subject=target.name,
        current=None if current is None else _word(current),
        candidate=_word(target),
        bound=PASSED,
        passed=target.parity.passed,
        detail=f"{target.parity.probe_count} probes against {target.parity.reference}",
    )


def _word(target: Target) -> str:
    return PASSED if target.parity.passed else "failed"


def _shown_bound(bound: float) -> str:
    short = f"{bound:g}"
    return short if float(short) == bound else repr(bound)


def _holds(value: float | None, bound: float, is_cosine: bool) -> bool:
    if value is None:
        return False
    return value >= bound if is_cosine else value <= bound


def _shown_current(current: Measured | None, target_name: str, gate: str) -> str | None:
    if current is None or _target_of(current, target_name) is None:
        return None
    return _shown(worst(current, target_name, gate), gate == MIN_COSINE)


def _shown_against(found: Found, bound: float, is_cosine: bool) -> str | None:
    """As many digits as it takes for a figure that fails to read as failing."""
    shown = _shown(found, is_cosine)
    if shown is None or found.value is None:
        return None
    reads_alike = _holds(float(shown), bound, is_cosine) == _holds(found.value, bound, is_cosine)
    return shown if reads_alike else repr(found.value)


def _shown(found: Found, is_cosine: bool) -> str | None:
    if found.value is None:
        return None
    return f"{found.value:.8f}" if is_cosine else f"{found.value:.3g}"


def _target_of(side: Measured | None, name: str) -> Target | None:
    if side is None:
        return None
    return next((target for target in side.manifest.targets if target.name == name), None)


def _compared(graph: Graph, gate: str) -> list[str]:
    names = [spec.name for spec in graph.outputs]
    return [name for name in names if gate == MAX_ABS or name not in _LOGITS]


def _figures(side: Measured, target_name: str) -> Mapping[str, object] | None:
    parity = (side.build or {}).get("parity")
    figures = parity.get(target_name) if isinstance(parity, Mapping) else None
    return figures if isinstance(figures, Mapping) else None
