"""Measures one target of an artifact on this host, and has the profile say what was found.

Every number of threads, and every wait of idle threads, is measured in a process of its own. They
take turns, round by round, so that a machine that slows down slows all of them.
"""

import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Kind, Manifest, Target
from infinity_v3.artifacts.profile import Profile, read_profile, write_profile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.target import DeviceChoice, TargetRequest, select_target
from infinity_v3.compiler.progress import Progress, Stage
from infinity_v3.compiler.tune_server import TunedServer, quantile_s, running_server
from infinity_v3.compiler.tuning import (
    TEXT_TOKENS,
    EngineSpeed,
    ServedSpeed,
    TuneReport,
    TuneSettings,
    choose_engine,
    choose_served,
    profile_of,
)

CHILD = "infinity_v3.compiler.tune_child"
BATCH_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SPIN_COUNTS = (1_000, 3_000, 10_000, 50_000, 300_000)
"""The last one is the OpenMP library's own."""
NUM_CLIENTS = 32
TEXT = "the quick brown fox jumps over the lazy dog"


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
    engine = choose_engine(engines)
    # One thread waits for nobody, whatever the count.
    counts = SPIN_COUNTS if engine.num_threads > 1 else SPIN_COUNTS[:1]
    with progress.stage(f"{target.name}: server", settings.num_rounds * len(counts)) as stage:
        servers = _measure_servers(artifact, settings, engine.num_threads, counts, stage)
    profile = profile_of(engine, choose_served(servers), latency_bound_s=settings.latency_bound_s)
    return TuneReport(target=target.name, engines=engines, servers=servers, profile=profile)


def thread_counts(num_cpus: int) -> tuple[int, ...]:
    """Candidates: all CPUs, and halves of that down to one."""
    counts = [num_cpus]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return tuple(reversed(counts))


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


class _EngineChild:
    """See tune_child."""

    def __init__(self, artifact: Artifact, target: Target, num_threads: int) -> None:
        output = artifact.manifest.graph.outputs[0].name
        self._target = target
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", CHILD),
                *(str(artifact.path), target.name, output, str(num_threads)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(num_threads)},
        )

    def __enter__(self) -> "_EngineChild":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def time_calls(self, num_tokens: int, budget_s: float) -> list[float]:
        """Seconds of calls with a batch of that size, run for so long.

        Raises:
            RunFailedError: the engine could not be loaded, crashed or failed.
        """
        process = self._process
        assert process.stdin is not None, "the child's input is a pipe; this is a bug"
        assert process.stdout is not None, "the child's output is a pipe; this is a bug"
        answer = ""
        try:
            process.stdin.write(f"{json.dumps([num_tokens, budget_s])}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            pass  # it has ended: below it is asked why
        if not answer:
            _, said = process.communicate()
            last = said.strip().splitlines()[-1:] or [f"it ended with {process.returncode}"]
            raise RunFailedError(f"target {self._target.name} could not be measured: {last[0]}")
        seconds: list[float] = json.loads(answer)
        return seconds


def _measure_servers(
    artifact: Artifact,
    settings: TuneSettings,
    num_threads: int,
    spin_counts: Sequence[int],
    stage: Stage,
) -> tuple[ServedSpeed, ...]:
    alone: dict[int, list[float]] = defaultdict(list)
    rates: dict[int, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        servers: dict[int, TunedServer] = {}
        for count in spin_counts:
            starting = running_server(
                artifact.path,
                _server_options(settings, num_threads),
                {"GOMP_SPINCOUNT": str(count)},
                question_of(artifact.manifest),
            )
            servers[count] = stack.enter_context(starting)
        for _ in range(settings.num_rounds):
            for count, one in servers.items():
                alone[count] += one.ask(1, settings.server_s)
                answered = one.ask(NUM_CLIENTS, settings.server_s)
                rates[count].append(len(answered) / settings.server_s)
                stage.advance()
    return tuple(
        ServedSpeed(
            spin_count=count,
            p50_s=statistics.median(alone[count]),
            p99_s=quantile_s(alone[count], 0.99),
            requests_per_s=statistics.median(rates[count]),
            startup_s=one.startup_s,
        )
        for count, one in servers.items()
    )


def _server_options(settings: TuneSettings, num_threads: int) -> tuple[str, ...]:
    return (
        *("--torch-device", "cpu", "--dtype", settings.dtype.value),
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
