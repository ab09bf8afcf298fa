"""What `infinity-compile tune` decides from what it measured. Knows nothing of how it measures.

Four questions are answered one after another: how many threads an engine call gets if it is alone,
whether more calls of fewer threads serve better, up to how many tokens a batch is filled, and how
long idle threads spin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log, sqrt

from infinity_v3.artifacts.profile import TargetProfile
from infinity_v3.artifacts.target import DtypeChoice

LATENCY_BOUND_S = 0.1
"""No batch is filled to more than the engine computes in this time."""
TEXT_TOKENS = 128
"""Length of the texts that batches are made of: what passages have."""
NEAR_BEST = 0.97
"""A rate that is this share of the best is as good: what differs less is noise."""
STEADY_RATE, STEADY_P50 = 0.9, 1.1
"""A tenth of a server's speed is given for a steadier one: spinning threads gain about that much on
an idle host, and cost several times as much in the tail, or beside any other work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpeed:
    """Engine calls with one number of threads.

    Attributes:
        seconds: median of one call, by tokens of its batch; at least one entry.
    """

    num_threads: int
    seconds: Mapping[int, float]

    @property
    def tokens_per_s(self) -> Mapping[int, float]:
        """Throughput by tokens of a batch."""
        return {tokens: tokens / second for tokens, second in self.seconds.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSpeed:
    """A server that runs so many engine calls at a time, each with so many threads.

    Attributes:
        p50_s: replies to one client.
        requests_per_s: with many clients at once.
    """

    num_replicas: int
    num_threads: int
    p50_s: float
    requests_per_s: float

    @property
    def score(self) -> float:
        """A reply twice as soon is worth twice as many replies."""
        return sqrt(self.requests_per_s / self.p50_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSpeed:
    """A server whose idle threads spin so often.

    Attributes:
        p50_s, p99_s: replies to one client.
        requests_per_s: with many clients at once.
        startup_s: process start to first answer.
    """

    spin_count: int
    p50_s: float
    p99_s: float
    requests_per_s: float
    startup_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """What the user decides.

    Attributes:
        dtype: narrows the choice of the target, as it does for a server.
        latency_bound_s: longest engine call that a batch is filled for.
        num_rounds: turns of each process.
        engine_s: of one turn of an engine, per batch size.
        server_s: of one turn of a server, per number of clients.
    """

    dtype: DtypeChoice = DtypeChoice.AUTO
    latency_bound_s: float = LATENCY_BOUND_S
    num_rounds: int = 3
    engine_s: float = 0.5
    server_s: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneReport:
    """What was measured for one target, and what follows."""

    target: str
    engines: tuple[EngineSpeed, ...]
    replicas: tuple[ReplicaSpeed, ...]
    servers: tuple[ServedSpeed, ...]
    profile: TargetProfile


def choose_engine(speeds: Sequence[EngineSpeed]) -> EngineSpeed:
    """Take the threads with the best geometric mean of rates; of equals, the fewest.

    Args:
        speeds: at least one; all of the same batch sizes.
    """
    means = {
        speed.num_threads: exp(fsum(map(log, speed.tokens_per_s.values())) / len(speed.seconds))
        for speed in speeds
    }
    enough = NEAR_BEST * max(means.values())
    return min(
        (speed for speed in speeds if means[speed.num_threads] >= enough),
        key=lambda speed: speed.num_threads,
    )


def choose_replicas(speeds: Sequence[ReplicaSpeed]) -> ReplicaSpeed:
    """Take the best geometric mean of throughput and lone replies; of equals, the fewest replicas.

    Args:
        speeds: at least one.
    """
    enough = NEAR_BEST * max(speed.score for speed in speeds)
    return min(
        (speed for speed in speeds if speed.score >= enough), key=lambda speed: speed.num_replicas
    )


def choose_fill_tokens(speed: EngineSpeed, latency_bound_s: float) -> int:
    """Take the smallest batch that is computed at the best rate, among those within the bound.

    The smallest batch of all is taken where none is.
    """
    within = [tokens for tokens, second in speed.seconds.items() if second <= latency_bound_s]
    rates = {tokens: speed.tokens_per_s[tokens] for tokens in within or [min(speed.seconds)]}
    return min(tokens for tokens, rate in rates.items() if rate >= NEAR_BEST * max(rates.values()))


def choose_served(speeds: Sequence[ServedSpeed]) -> ServedSpeed:
    """Take the steadiest of the fast ones: lowest p99 where p50 and throughput suffer little.

    Args:
        speeds: at least one.
    """
    least = STEADY_RATE * max(speed.requests_per_s for speed in speeds)
    # The fastest reply and the highest rate may be two servers': then the rate decides.
    busy = [speed for speed in speeds if speed.requests_per_s >= least]
    soon = STEADY_P50 * min(speed.p50_s for speed in busy)
    return min((speed for speed in busy if speed.p50_s <= soon), key=lambda speed: speed.p99_s)


def profile_of(
    engine: EngineSpeed, served: ServedSpeed, *, num_replicas: int, latency_bound_s: float
) -> TargetProfile:
    """Put the answers together.

    Args:
        engine: with the threads of one replica.
        served: with all replicas.
        num_replicas: as chosen; a single one is what servers run anyway.
        latency_bound_s: longest engine call that a batch is filled for.
    """
    fill_tokens = choose_fill_tokens(engine, latency_bound_s)
    return TargetProfile(
        fill_tokens=fill_tokens,
        num_threads=engine.num_threads,
        num_replicas=num_replicas if num_replicas > 1 else None,
        # One thread tells nothing of how several should wait.
        spin_count=served.spin_count if engine.num_threads > 1 else None,
        # Of all replicas: what they take from one another, memory bandwidth, is left out.
        tokens_per_s=round(num_replicas * engine.tokens_per_s[fill_tokens], 1),
        startup_s=round(served.startup_s, 3),
    )
