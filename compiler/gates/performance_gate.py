"""Speed: candidate against what the channel points to, side by side on this host.

Turns what was measured into figures. Knows nothing of processes and statistics.
"""

from collections.abc import Iterator, Mapping

from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.host import HostCapabilities, detect_host
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.artifacts.target import select_target
from infinity_v3.compiler.gates.policy import ChannelPolicy
from infinity_v3.compiler.gates.promotion import Fetch, Promotion, Side, not_run
from infinity_v3.compiler.gates.ratios import Bound
from infinity_v3.compiler.gates.rounds import Comparison, RoundLimits, compare_rounds
from infinity_v3.compiler.gates.side_by_side import (
    MAX_P50_SLOWDOWN,
    MIN_THROUGHPUT_RATIO,
    Runner,
    side_by_side,
)
from infinity_v3.compiler.progress import Progress

FIRST = "nothing to compare with: the channel is empty"
_MS = 1e3


def speed_bounds(policy: ChannelPolicy) -> Mapping[str, Bound]:
    """What the policy asks of speed, by gate."""
    bounds = {}
    if policy.max_p50_slowdown is not None:
        bounds[MAX_P50_SLOWDOWN] = Bound(value=policy.max_p50_slowdown, is_upper=True)
    if policy.min_throughput_ratio is not None:
        bounds[MIN_THROUGHPUT_RATIO] = Bound(value=policy.min_throughput_ratio, is_upper=False)
    return bounds


def speed_not_run(promotion: Promotion) -> Iterator[GateFigure]:
    """The figures where a gate before has failed."""
    for gate, bound in speed_bounds(promotion.policy).items():
        yield not_run(gate, "this host", bound.text)


def speed_figures(
    promotion: Promotion, fetch: Fetch, progress: Progress, limits: RoundLimits | None = None
) -> Iterator[GateFigure]:
    """Measure what the policy bounds; a figure per bound.

    An artifact that cannot be run here fails the gate, as nothing is known of it then.

    Args:
        promotion: both sides.
        fetch: see `Fetch`.
        progress: a stage is shown while rounds are measured.
        limits: see `compare_rounds`.
    """
    bounds = speed_bounds(promotion.policy)
    if not bounds:
        return
    if promotion.current is None:
        yield from (_plain(gate, bound, FIRST, passed=True) for gate, bound in bounds.items())
        return
    limits = limits or RoundLimits()
    try:
        host = detect_host()
        current = _runner(promotion.current, fetch, host)
        candidate = _runner(promotion.candidate, fetch, host)
        with (
            progress.stage("measure side by side", limits.most) as stage,
            side_by_side(current, candidate) as measure,
        ):
            found = compare_rounds(bounds, measure, stage, limits)
    except (RefusedError, RunFailedError) as error:
        detail = f"could not be measured: {error}"
        yield from (_plain(gate, bound, detail, passed=False) for gate, bound in bounds.items())
        return
    subject = _subject(current, candidate)
    for gate, bound in bounds.items():
        yield _figure(gate, subject, bound, found[gate])


def _runner(side: Side, fetch: Fetch, host: HostCapabilities) -> Runner:
    return Runner(artifact=fetch(side), target=select_target(side.manifest, host).target)


def _subject(current: Runner, candidate: Runner) -> str:
    names = dict.fromkeys((current.target.name, candidate.target.name))
    return " -> ".join(names)


def _plain(gate: str, bound: Bound, detail: str, *, passed: bool) -> GateFigure:
    return GateFigure(
        gate=gate,
        subject="this host",
        current=None,
        candidate=None,
        bound=bound.text,
        passed=passed,
        detail=detail,
    )


def _figure(gate: str, subject: str, bound: Bound, found: Comparison) -> GateFigure:
    interval = found.interval
    detail = (
        f"ratio {interval.ratio:.3f}, 95 % interval {interval.low:.3f} to {interval.high:.3f}, "
        f"{interval.num_rounds} rounds"
    )
    if found.is_undecided:
        detail += "; undecided at the last round, the ratio itself decides"
    return GateFigure(
        gate=gate,
        subject=subject,
        current=_shown(gate, found.current),
        candidate=_shown(gate, found.candidate),
        bound=bound.text,
        passed=found.passed,
        detail=detail,
    )


def _shown(gate: str, value: float) -> str:
    return f"{value * _MS:.3g} ms" if gate == MAX_P50_SLOWDOWN else f"{value:.0f} tokens/s"
