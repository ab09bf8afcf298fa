"""Measures one target of an artifact on this host, and has the profile say what was found.

Every number of threads and of replicas, and every wait of idle threads, is measured in a process of
its own. They take turns, round by round, so that a machine that slows down slows all of them.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar, cast

from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Kind, Manifest, Target
from infinity_v3.artifacts.profile import Profile, read_profile, write_profile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.target import DeviceChoice, TargetRequest, select_target
from infinity_v3.compiler.asked_child import AskedChild
from infinity_v3.compiler.progress import Progress, Stage
from infinity_v3.compiler.tune_server import quantile_s, running_server
from infinity_v3.compiler.tuning import (
    TEXT_TOKENS,
    EngineSpeed,
    ReplicaSpeed,
    ServedSpeed,
    TuneReport,
    TuneSettings,
    choose_engine,
    choose_replicas,
    choose_served,
    profile_of,
)

CHILD = "infinity_v3.compiler.tune_child"
BATCH_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SPIN_COUNTS = (1_000, 3_000, 10_000, 50_000, 300_000)
"""The last one is the OpenMP library's own."""
NUM_CLIENTS = 32
TEXT = "the quick brown fox jumps over the lazy dog"
_Key = TypeVar("_Key", int, tuple[int, int])
_Variant = tuple[Sequence[str], Mapping[str, str]]
"""Options and variables of a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replies:
    """What one server answered: seconds of replies to one client, requests/s with many."""

    startup_s: float
    alone_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


def tune_artifact(artifact: Artifact, settings: TuneSettings, progress: Progress) -> TuneReport:
    """Measure the target that a server would choose here, and rewrite the artifact's profile.

    The facts of its other targets stay.

    Raises:
        RefusedError: this host can run none of that precision.
        RunFailedError: an engine or a server failed, or the profile cannot be written.
    """
    request = TargetRequest(device=DeviceChoice.CPU, dtype=settings.dtype)
    target = select_target(artifact.manifest, detect_host(), request).target
    known = read_profile(artifact.path)
    report = _tune(artifact, target, settings, progress)
    write_profile(artifact.path, Profile(targets={**known.targets, report.target: report.profile}))
    return report


def _tune(
    artifact: Artifact, target: Target, settings: TuneSettings, progress: Progress
) -> TuneReport:
    threads, sizes = thread_counts(detect_host().num_cpus), batch_sizes(target, artifact.manifest)
    total = settings.num_rounds * len(threads) * len(sizes)
    with progress.stage(f"{target.name}: engine", total) as stage:
        engines = _measure_engines(artifact, target, settings, stage)
    shares = cpu_shares(detect_host().num_cpus, choose_engine(engines).num_threads)
    with progress.stage(f"{target.name}: replicas", settings.num_rounds * len(shares)) as stage:
        replicas = _measure_replicas(artifact, settings, shares, stage)
    chosen = choose_replicas(replicas)
    # One thread waits for nobody, whatever the count.
    counts = SPIN_COUNTS if chosen.num_threads > 1 else SPIN_COUNTS[:1]
    with progress.stage(f"{target.name}: server", settings.num_rounds * len(counts)) as stage:
        servers = _measure_servers(artifact, settings, chosen, counts, stage)
    profile = profile_of(
        next(engine for engine in engines if engine.num_threads == chosen.num_threads),
        choose_served(servers),
        num_replicas=chosen.num_replicas,
        latency_bound_s=settings.latency_bound_s,
    )
    return TuneReport(
        target=target.name, engines=engines, replicas=replicas, servers=servers, profile=profile
    )


def thread_counts(num_cpus: int) -> tuple[int, ...]:
    """Candidates: all CPUs, and halves of that down to one."""
    counts = [num_cpus]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return tuple(reversed(counts))


def cpu_shares(num_cpus: int, num_threads: int) -> tuple[tuple[int, int], ...]:
    """Candidates (replicas, threads of each): one alone, and all CPUs shared out in teams.

    Args:
        num_cpus: of this process.
        num_threads: what is best for a single replica.
    """
    teams = ((num_cpus // count, count) for count in reversed(thread_counts(num_cpus)))
    return ((1, num_threads), *(team for team in teams if team[0] > 1))


def batch_sizes(target: Target, manifest: Manifest) -> tuple[int, ...]:
    """Batch sizes that the target takes, and one at least."""
    length = min(TEXT_TOKENS, manifest.model.max_input_tokens)
    most = min(target.limits.max_tokens, target.limits.max_sequences * length)
    return tuple(size for size in BATCH_TOKENS if size <= most) or (most,)


def _measure_engines(
    artifact: Artifact, target: Target, settings: TuneSettings, stage: Stage
) -> tuple[EngineSpeed, ...]:
    sizes = batch_sizes(target, artifact.manifest)
    seconds: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        children = {
            count: stack.enter_context(_EngineChild(artifact, target, count))
            for count in thread_counts(detect_host().num_cpus)
        }
        for _ in range(settings.num_rounds):
            for size in sizes:
                for count, child in children.items():
                    seconds[count][size] += child.time_calls(size, settings.engine_s)
                    stage.advance()
    return tuple(
        EngineSpeed(
            num_threads=count,
            seconds={size: statistics.median(times) for size, times in by_size.items()},
        )
        for count, by_size in seconds.items()
    )


class _EngineChild(AskedChild):
    """See tune_child."""

    def __init__(self, artifact: Artifact, target: Target, num_threads: int) -> None:
        output = artifact.manifest.graph.outputs[0].name
        super().__init__(
            CHILD,
            (str(artifact.path), target.name, output, str(num_threads)),
            target.name,
            {"OMP_NUM_THREADS": str(num_threads)},
        )

    def time_calls(self, num_tokens: int, budget_s: float) -> list[float]:
        """Seconds of calls with a batch of that size, run for so long.

        Raises:
            RunFailedError: the engine could not be loaded, crashed or failed.
        """
        return cast(list[float], self.ask((num_tokens, budget_s)))


def _measure_replicas(
    artifact: Artifact,
    settings: TuneSettings,
    shares: Sequence[tuple[int, int]],
    stage: Stage,
) -> tuple[ReplicaSpeed, ...]:
    servers: dict[tuple[int, int], _Variant] = {
        share: (_server_options(settings, *share), {}) for share in shares
    }
    return tuple(
        ReplicaSpeed(
            num_replicas=share[0],
            num_threads=share[1],
            p50_s=statistics.median(found.alone_s),
            requests_per_s=statistics.median(found.rates),
        )
        for share, found in _ask_in_turn(artifact, servers, settings, stage).items()
    )


def _measure_servers(
    artifact: Artifact,
    settings: TuneSettings,
    chosen: ReplicaSpeed,
    spin_counts: Sequence[int],
    stage: Stage,
) -> tuple[ServedSpeed, ...]:
    options = _server_options(settings, chosen.num_replicas, chosen.num_threads)
    servers: dict[int, _Variant] = {
        count: (options, {"GOMP_SPINCOUNT": str(count)}) for count in spin_counts
    }
    return tuple(
        ServedSpeed(
            spin_count=count,
            p50_s=statistics.median(found.alone_s),
            p99_s=quantile_s(found.alone_s, 0.99),
            requests_per_s=statistics.median(found.rates),
            startup_s=found.startup_s,
        )
        for count, found in _ask_in_turn(artifact, servers, settings, stage).items()
    )


def _ask_in_turn(
    artifact: Artifact,
    variants: Mapping[_Key, _Variant],
    settings: TuneSettings,
    stage: Stage,
) -> dict[_Key, _Replies]:
    """Run a server of each variant, and ask them round by round."""
    question = question_of(artifact.manifest)
    with ExitStack() as stack:
        servers = {
            key: stack.enter_context(running_server(artifact.path, options, environ, question))
            for key, (options, environ) in variants.items()
        }
        replies = {key: _Replies(startup_s=one.startup_s) for key, one in servers.items()}
        for _ in range(settings.num_rounds):
            for key, one in servers.items():
                replies[key].alone_s.extend(one.ask(1, settings.server_s))
                answered = one.ask(NUM_CLIENTS, settings.server_s)
                replies[key].rates.append(len(answered) / settings.server_s)
                stage.advance()
    return replies


def _server_options(settings: TuneSettings, num_replicas: int, num_threads: int) -> tuple[str, ...]:
    return (
        *("--torch-device", "cpu", "--dtype", settings.dtype.value),
        *("--cpu-replicas", str(num_replicas)),
        *("--cpu-threads-per-replica", str(num_threads)),
        "--allow-shared-artifacts",
    )


def question_of(manifest: Manifest) -> Mapping[str, object]:
    """A short request that a model of that kind answers."""
    if manifest.kind is Kind.DECISION:
        return {"state": "a short state", "questions": {"q": {"type": "noul"}}}
    if manifest.kind is Kind.RERANKER:
        return {"query": TEXT, "texts": [TEXT]}
    return {"inputs": TEXT}
