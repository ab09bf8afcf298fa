"""The load scenario: Poisson arrivals above capacity, small limits, every answer checked.

Knows nothing of reports or charts.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fault_claims import Scenario
from http_metrics import read_metrics, series, wait_until_idle
from load_client import Sent
from load_observer import LoadObserver, Sample, slope_per_minute, slowest_tokens_per_s
from load_plan import LoadMix
from load_process import CpuShare, measure_capacity, on_cpus, run_open_loop
from server_process import ServerProcess

MAX_REQUESTS = 48
MAX_QUEUE_TOKENS = 2048
OVERLOAD = 1.5
OUTSIDE_S = 0.25
WINDOW_S = 5.0
MAX_SLOPE_MB = 1.0
MAX_LATE_S = 0.05
LONG_S = 240.0
"""From here on the run has the machine to itself and is long enough to fit its memory."""
_CAPACITY_CLIENTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """What a load run measured; times in seconds."""

    capacity_per_s: float
    rate_per_s: float
    duration_s: float
    bound_s: float
    tokens_per_s: float
    latency: dict[str, float]
    statuses: dict[str, int]
    slope_mb: float
    sent: Sequence[Sent]
    samples: Sequence[Sample]


def run_load(  # noqa: PLR0913  # a run's facts
    artifact: Path,
    mix: LoadMix,
    cpus: CpuShare,
    *,
    duration_s: float,
    seed: int,
    say: Callable[[str], None],
    overload: float = OVERLOAD,
) -> tuple[Scenario, LoadFigures | None]:
    """Measure the capacity, then send that many times as much for that long."""
    scenario = Scenario(
        name="overload",
        what=f"{duration_s / 60:g} minutes of open-loop Poisson traffic at {overload:g} times the "
        f"measured capacity; --max-concurrent-requests {MAX_REQUESTS}, --max-queue-tokens "
        f"{MAX_QUEUE_TOKENS}",
    )
    figures = None
    with scenario.running(say), tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "requests.jsonl"
        with on_cpus(cpus.server):
            server = _server(artifact, log, len(cpus.server))
            server.start()
        try:
            server.wait_until_ready()
            figures = _measure(scenario, server, mix, cpus, duration_s, seed, say, overload)
            scenario.claim_equal("the server ends with 0", server.stop(), 0)
            _claim_records(scenario, log, figures.sent, seed)
        finally:
            server.kill()
    return scenario, figures


def _server(artifact: Path, log: Path, num_threads: int) -> ServerProcess:
    return ServerProcess(
        artifact,
        *("--dtype", "float32", "--max-concurrent-requests", str(MAX_REQUESTS)),
        *("--max-queue-tokens", str(MAX_QUEUE_TOKENS), "--max-client-batch-size", "32"),
        *("--cpu-threads-per-replica", str(num_threads), "--request-log", str(log)),
    )


def _measure(  # noqa: PLR0913  # a run's facts
    scenario: Scenario,
    server: ServerProcess,
    mix: LoadMix,
    cpus: CpuShare,
    duration_s: float,
    seed: int,
    say: Callable[[str], None],
    overload: float,
) -> LoadFigures:
    port = int(server.base_url.rpartition(":")[2])
    measure_s = min(15.0, max(3.0, duration_s / 20))
    capacity = measure_capacity(
        mix, port, num_clients=_CAPACITY_CLIENTS, seconds=measure_s, cpus=cpus.client
    )
    rate = overload * capacity
    say(f"capacity {capacity:.0f} requests/s; sending {rate:.0f}/s for {duration_s:g} s")
    failed_before = series(read_metrics(server), 'te_request_failure{err="dropped"')
    with on_cpus(cpus.client), LoadObserver(server) as observer:
        sent, num_surplus = run_open_loop(
            mix,
            port,
            rate_per_s=rate,
            duration_s=duration_s,
            seed=seed,
            cpus=cpus.client,
            progress=say,
        )
    wait_until_idle(server)
    dropped = series(read_metrics(server), 'te_request_failure{err="dropped"') - failed_before
    scenario.claim_equal("no request counts as dropped", dropped, 0)
    scenario.claim_equal("bytes that belong to no answer", num_surplus, 0)
    scenario.claim_equal("probes that failed under load", observer.problems, [])
    figures = _figures(capacity, rate, duration_s, sent, observer.samples)
    _claim_answers(scenario, figures)
    _claim_times(scenario, figures)
    return figures


def _figures(
    capacity: float,
    rate: float,
    duration_s: float,
    sent: Sequence[Sent],
    samples: Sequence[Sample],
) -> LoadFigures:
    accepted = np.array([one.latency_s for one in sent if one.status == 200] or [0.0])
    refused = np.array([one.latency_s for one in sent if one.status == 429] or [0.0])
    late = np.array([one.late_s for one in sent] or [0.0])
    tokens_per_s = slowest_tokens_per_s(samples, window_s=WINDOW_S)
    shares = {"p50": 50, "p99": 99, "max": 100}
    latency = {f"accepted {name}": float(np.percentile(accepted, q)) for name, q in shares.items()}
    latency |= {f"refused {name}": float(np.percentile(refused, q)) for name, q in shares.items()}
    latency |= {f"late {name}": float(np.percentile(late, q)) for name, q in shares.items()}
    return LoadFigures(
        capacity_per_s=capacity,
        rate_per_s=rate,
        duration_s=duration_s,
        bound_s=MAX_QUEUE_TOKENS / max(tokens_per_s, 1.0) + OUTSIDE_S,
        tokens_per_s=tokens_per_s,
        latency=latency,
        statuses={str(k): v for k, v in Counter(one.status for one in sent).items()},
        slope_mb=slope_per_minute(samples, from_s=warm_up_s(duration_s)),
        sent=sent,
        samples=samples,
    )


def warm_up_s(duration_s: float) -> float:
    """Seconds that the fit of memory leaves out: buffers for every batch size are made there."""
    return max(20.0, 0.2 * duration_s)


def _claim_answers(scenario: Scenario, figures: LoadFigures) -> None:
    statuses = figures.statuses
    scenario.claim("429 occurs", statuses.get("429", 0) > 0, statuses)
    scenario.claim(
        "every request has exactly one answer, 200 or 429",
        set(statuses) <= {"200", "429"},
        f"{len(figures.sent)} sent: {statuses}",
    )
    wrong = [one for one in figures.sent if not one.is_right]
    scenario.claim_equal(
        "wrong answers: vectors that differ from the references, another request's id, or a 429 "
        "without Retry-After of 1 to 60",
        len(wrong),
        0,
    )


def _claim_times(scenario: Scenario, figures: LoadFigures) -> None:
    scenario.claim_below(
        "p99 of accepted requests, s, is at most max_queue_tokens / (slowest tokens/s of any "
        f"{WINDOW_S:g} s) + {OUTSIDE_S:g} = {MAX_QUEUE_TOKENS} / {figures.tokens_per_s:.0f} + "
        f"{OUTSIDE_S:g}",
        figures.latency["accepted p99"],
        figures.bound_s,
        "s",
    )
    is_long = figures.duration_s >= LONG_S
    slowest = max((sample.health_s for sample in figures.samples), default=0.0)
    scenario.claim_below("the slowest /health", slowest, 1.0 if is_long else 5.0, "s")
    if is_long:
        scenario.claim_below(
            "the load generator kept its times: p99 of its own lateness",
            figures.latency["late p99"],
            MAX_LATE_S,
            "s",
        )
        scenario.claim_below(
            "growth of resident memory per minute, fitted after "
            f"{warm_up_s(figures.duration_s):g} s",
            figures.slope_mb,
            MAX_SLOPE_MB,
            "MB",
        )


def _claim_records(scenario: Scenario, log: Path, sent: Sequence[Sent], seed: int) -> None:
    """The server's own account: one terminal record for each request, with the same status."""
    records: Counter[str] = Counter()
    statuses: dict[str, object] = {}
    with log.open() as lines:
        for line in lines:
            record = json.loads(line)
            name = str(record["request_id"])
            if name.startswith(f"o{seed}-"):
                records[name] += 1
                statuses[name] = record["status"]
    expected = {f"o{seed}-{one.number}": one.status for one in sent}
    scenario.claim(
        "the request log holds exactly one record of each request, with the status that arrived",
        statuses == expected and set(records.values()) <= {1},
        f"{sum(records.values())} records of {len(expected)} requests",
    )
