"""`infinity-compile tune` measures a real engine and real servers, and servers heed it."""

import os
from pathlib import Path

import pytest

from compiled import infinity_compile
from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.profile import Profile, TargetProfile, read_profile, write_profile
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.target import DtypeChoice
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.tune import (
    SPIN_COUNTS,
    batch_sizes,
    cpu_shares,
    question_of,
    thread_counts,
    tune_artifact,
)
from infinity_v3.compiler.tune_child import make_batch
from infinity_v3.compiler.tune_server import quantile_s, running_server
from infinity_v3.compiler.tuning import TuneSettings
from server_process import ServerProcess
from tampering import copy_artifact
from tiny_artifacts import FLOAT32_TARGET, TinyArtifact

BRIEF = TuneSettings(num_rounds=1, engine_s=0.001, server_s=0.05)


@pytest.fixture
def copy(small: TinyArtifact, tmp_path: Path) -> Path:
    return copy_artifact(small.artifact, tmp_path / "copy")


def test_a_tiny_model_is_measured_and_served(copy: Path) -> None:
    other = TargetProfile(fill_tokens=17)
    write_profile(copy, Profile(targets={"another": other}))
    artifact = open_artifact(copy)
    report = tune_artifact(artifact, BRIEF, SilentProgress())
    assert report.target == artifact.manifest.targets[0].name
    threads = thread_counts(len(os.sched_getaffinity(0)))
    assert [engine.num_threads for engine in report.engines] == list(threads)
    sizes = batch_sizes(artifact.manifest.targets[0], artifact.manifest)
    for engine in report.engines:
        assert tuple(engine.seconds) == sizes
        assert min(engine.seconds.values()) > 0
    shares = cpu_shares(threads[-1], report.replicas[0].num_threads)
    assert [(one.num_replicas, one.num_threads) for one in report.replicas] == list(shares)
    for one in report.replicas:
        assert min(one.p50_s, one.requests_per_s) > 0
    for server in report.servers:
        assert server.spin_count in SPIN_COUNTS
        assert 0 < server.p50_s <= server.p99_s
        assert server.requests_per_s > 0
    # Another target's facts stay, and so does the artifact's id.
    assert read_profile(copy).targets == {"another": other, report.target: report.profile}
    assert open_artifact(copy).artifact_id == artifact.artifact_id
    with ServerProcess(copy) as started:
        fill = f"fill_tokens={report.profile.fill_tokens} "
        assert fill in started.log


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "GOMP_SPINCOUNT = '1234'"),
        ({"GOMP_SPINCOUNT": "77"}, "GOMP_SPINCOUNT = '77'"),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, "GOMP_SPINCOUNT = '0'"),
    ],
)
def test_idle_threads_spin_as_measured_unless_the_user_decides(
    copy: Path, environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY")
    write_profile(copy, Profile(targets={FLOAT32_TARGET: TargetProfile(spin_count=1234)}))
    with ServerProcess(copy, env={"OMP_DISPLAY_ENV": "VERBOSE", **environment}) as started:
        assert expected in started.log


def test_the_command_says_what_is_wrong(copy: Path, tmp_path: Path) -> None:
    missing = infinity_compile("tune", str(tmp_path / "nothing"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "no such artifact" in missing.stderr
    bound = infinity_compile("tune", str(copy), "--latency-bound-ms", "0")
    assert bound.returncode == 2
    assert "latency-bound-ms" in bound.stderr
    (copy / "profile.json").write_bytes(b"{}x")
    broken = infinity_compile("tune", str(copy), "--json")
    assert (broken.returncode, broken.stdout) == (3, "")
    assert "profile.json" in broken.stderr


def test_a_precision_that_is_not_there_is_refused(small: TinyArtifact) -> None:
    settings = TuneSettings(dtype=DtypeChoice.FLOAT16)
    with pytest.raises(RefusedError, match="float16"):
        tune_artifact(open_artifact(small.artifact), settings, SilentProgress())


def test_a_server_that_does_not_start_is_named(small: TinyArtifact) -> None:
    server = running_server(small.artifact, ("--max-batch-tokens", "0"), {}, {"inputs": "a"})
    with pytest.raises(RunFailedError, match=r"did not start: .*--max-batch-tokens"), server:
        pass


def test_a_reply_that_is_no_200_is_named(small: TinyArtifact) -> None:
    server = running_server(small.artifact, (), {}, {"inputs": 7})
    with pytest.raises(RunFailedError, match=r"answered 'HTTP/1\.1 422"), server:
        pass


def test_batches_hold_as_many_tokens_as_asked() -> None:
    batch = make_batch(300, vocab_size=50, longest=512, position_offset=2)
    assert batch.num_tokens == 300
    assert batch.cu_seqlens.tolist() == [0, 128, 256, 300]
    assert 0 <= batch.input_ids.min() <= batch.input_ids.max() < 50


@pytest.mark.parametrize(("cpus", "expected"), [(1, (1,)), (2, (1, 2)), (12, (1, 3, 6, 12))])
def test_candidates_for_threads(cpus: int, expected: tuple[int, ...]) -> None:
    assert thread_counts(cpus) == expected


@pytest.mark.parametrize(
    ("cpus", "threads", "expected"),
    [
        (1, 1, ((1, 1),)),
        (2, 2, ((1, 2), (2, 1))),
        (12, 6, ((1, 6), (2, 6), (4, 3), (12, 1))),
    ],
)
def test_candidates_for_replicas(
    cpus: int, threads: int, expected: tuple[tuple[int, int], ...]
) -> None:
    assert cpu_shares(cpus, threads) == expected


def test_rerankers_are_asked_for_pairs(reranker_artifact: Path) -> None:
    question = question_of(open_artifact(reranker_artifact).manifest)
    with running_server(reranker_artifact, (), {}, question) as server:
        assert server.startup_s > 0
        assert min(server.ask(2, 0.0)) > 0


def test_quantiles_are_times_that_occurred() -> None:
    assert quantile_s([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile_s([3.0, 1.0, 2.0], 0.99) == 3.0
