"""Typed decisions through a real server over a compiled artifact, against the `laya` package."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiled import CompiledArtifacts, infinity_compile
from decision_artifact import LAYA, NAME, laya_artifact, laya_checkpoint
from decision_requests import generate_body
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.compiler.cpu_targets import CPU_TARGETS
from infinity_v3.compiler.programs.retarget import check_reference, reference_of
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.reverify import reference_of as checkpoint_reference
from laya_oracle import LayaOracle, OracleAnswer
from server_process import ServerProcess
from tiny_artifacts import FLOAT32_TARGET

NUM_REQUESTS = 60
MAX_DIFFERENCE = 1e-5
PAGE = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text(encoding="utf-8")
MOST_STATE = 4000
"""Characters: longer states take the oracle seconds."""


@pytest.fixture(scope="module")
def checkpoint(compiled_artifact: CompiledArtifacts) -> Path:
    return laya_checkpoint(compiled_artifact)


@pytest.fixture(scope="module")
def artifact(compiled_artifact: CompiledArtifacts) -> Path:
    return laya_artifact(compiled_artifact)


@pytest.fixture(scope="module")
def server(artifact: Path) -> Iterator[ServerProcess]:
    with ServerProcess(artifact, "--decision-alias", "old-name=tiny-laya") as running:
        yield running


@pytest.fixture(scope="module")
def oracle(checkpoint: Path) -> LayaOracle:
    return LayaOracle(checkpoint)


def post(server: ServerProcess, body: object) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"{server.base_url}/v1/systemone",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def generated() -> list[dict[str, Any]]:
    bodies = (generate_body(seed) for seed in range(10_000, 10_400))
    short = [body for body in bodies if len(json.dumps(body["state"])) < MOST_STATE]
    return short[:NUM_REQUESTS]


def expected_of(oracle: LayaOracle, body: dict[str, Any]) -> dict[str, OracleAnswer] | None:
    """None where the options do not fit."""
    try:
        return oracle.answer(
            body["state"],
            body["questions"],
            max_len=min(body.get("max_len") or LAYA.max_len, LAYA.max_len),
            head_max_len=body.get("head_max_len"),
        )
    except ValueError:
        return None


def probabilities_of(answer: dict[str, Any]) -> list[float]:
    if answer["type"] == "noul":
        return [1.0 - answer["noul"], answer["noul"]]
    return list(answer["probabilities"].values())


def test_concurrent_requests_are_answered_as_the_package_does(
    server: ServerProcess, oracle: LayaOracle
) -> None:
    bodies = generated()
    assert len(bodies) == NUM_REQUESTS
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda body: post(server, body), bodies))
    worst, num_answered = 0.0, 0
    for body, (status, reply) in zip(bodies, replies, strict=True):
        expected = expected_of(oracle, body)
        if expected is None:
            assert status == 422
            assert reply["detail"][0]["type"] == "max_length_exceeded"
            continue
        assert status == 200, reply
        assert list(reply["answers"]) == list(body["questions"])
        assert reply["usage"]["input_tokens"] == sum(len(a.ids) for a in expected.values())
        for answer, wanted in zip(reply["answers"].values(), expected.values(), strict=True):
            found = probabilities_of(answer)
            worst = max(worst, float(np.abs(np.subtract(found, wanted.probabilities)).max()))
            assert answer.get("x_truncated", False) == wanted.is_truncated
        num_answered += 1
    assert num_answered >= 0.8 * NUM_REQUESTS
    assert worst <= MAX_DIFFERENCE, f"largest difference {worst:.3g} over {num_answered} requests"


def test_questions_of_a_request_share_a_batch(server: ServerProcess) -> None:
    def batches() -> tuple[float, float]:
        with urllib.request.urlopen(f"{server.base_url}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return (
            float(values["te_batch_next_size_sum"]),
            float(values["te_batch_next_size_count"]),
        )

    before = batches()
    questions = {f"q{i}": {"type": "noul", "instructions": f"is it {i}?"} for i in range(16)}
    status, _ = post(server, {"state": "a state", "questions": questions})
    assert status == 200
    after = batches()
    assert (after[0] - before[0], after[1] - before[1]) == (16, 1)


def test_the_conformance_suite_calls_it_conformant(server: ServerProcess, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "jevcompat.cli", "test", server.base_url, "--json", str(report)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert json.loads(report.read_text())["summary"]["verdict"] == "conformant"


def test_an_alias_of_the_configuration(server: ServerProcess) -> None:
    question = {"q": {"type": "noul", "instructions": "?"}}
    status, reply = post(server, {"model": "old-name", "state": "", "questions": question})
    assert (status, reply["model"]) == (200, "tiny-laya")
    status, reply = post(server, {"model": "new-name", "state": "", "questions": question})
    assert (status, reply["detail"]["error_type"]) == (404, "model_not_found")


def test_states_are_not_cut_where_the_server_must_not(artifact: Path) -> None:
    question = {"q": {"type": "noul", "instructions": "?"}}
    with ServerProcess(artifact, "--auto-truncate", "false") as server:
        assert post(server, {"state": "the " * 100, "questions": question})[0] == 200
        status, reply = post(server, {"state": "the " * 3000, "questions": question})
        assert status == 422
        (entry,) = reply["detail"]
        assert entry["loc"] == ["body", "questions", "q"]
        assert entry["type"] == "max_length_exceeded"


def test_verify_runs_the_checkpoint_again(artifact: Path, checkpoint: Path) -> None:
    done = infinity_compile("verify", artifact, "--checkpoint", checkpoint, "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    (target,) = json.loads(done.stdout)["targets"]
    assert target["figures"]["option_logits.max_probability"] <= MAX_DIFFERENCE
    assert target["bounds"]["max_probability"] == MAX_DIFFERENCE


def swapped(ids: Mapping[str, int], first: str, second: str) -> dict[str, int]:
    return {**ids, first: ids[second], second: ids[first]}


def test_a_manifest_that_asks_otherwise_is_refused(artifact: Path, checkpoint: Path) -> None:
    """Its engine is right, so that only comparing what the files say finds it."""
    opened = open_artifact(artifact)
    decision = opened.manifest.decision
    assert decision is not None
    types, specials = decision.type_ids, decision.special_ids
    cases = {
        "type_ids.choice": replace(decision, type_ids=swapped(types, "choice", "noul")),
        "special_ids.cls": replace(decision, special_ids=swapped(specials, "cls", "sep")),
    }
    for place, changed in cases.items():
        forged = replace(opened, manifest=replace(opened.manifest, decision=changed))
        with pytest.raises(RefusedError, match=f"artifact.json: decision.{place}: expected "):
            checkpoint_reference(forged, checkpoint, SilentProgress())


def test_a_kept_program_was_held_to_the_checkpoint(artifact: Path) -> None:
    figures = json.loads((artifact / "build.json").read_bytes())["parity"]["program/float32"]
    assert 0 < figures["option_logits.max_probability"] <= MAX_DIFFERENCE


def test_later_targets_are_compared_with_questions_to_the_kept_program(artifact: Path) -> None:
    opened = open_artifact(artifact)
    targets = tuple(target for target in CPU_TARGETS if target.name == FLOAT32_TARGET)
    reference = reference_of(opened, targets, SilentProgress())
    assert reference.probes.readouts
    (report,) = check_reference(opened, reference, 2, SilentProgress())
    assert 0 < report.figures["option_logits.max_probability"] <= MAX_DIFFERENCE
    assert report.passed


def test_a_registry_gives_back_what_it_was_given(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFINITY_REGISTRY", str(tmp_path / "registry"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for arguments in (
        ("init",),
        ("push", artifact, "--version", "1.0.0"),
        ("promote", NAME, "--version", "1.0.0", "--to", "prod"),
    ):
        done = infinity_compile("registry", *arguments)
        assert done.returncode == 0, done.stderr[-2000:]
    environment = {"INFINITY_REGISTRY": str(tmp_path / "registry")}
    with ServerProcess(f"{NAME}:prod", env=environment) as server:
        question = {"q": {"type": "noul", "instructions": "?"}}
        status, reply = post(server, {"state": "", "questions": question})
        assert (status, reply["model"]) == (200, NAME)


CURL = re.compile(r"^curl (?P<words>.*?-d '[^']*'$)", re.M | re.S)


def test_examples_of_the_page_run_as_they_stand(server: ServerProcess, tmp_path: Path) -> None:
    port = server.base_url.rpartition(":")[2]
    (tmp_path / ".curlrc").write_text(
        f'connect-to = "localhost:3000:127.0.0.1:{port}"\nnoproxy = "*"\n'
        'silent\nshow-error\nwrite-out = "\\n%{http_code}"\n'
    )
    statuses, replies = [], []
    for example in CURL.finditer(PAGE):
        done = subprocess.run(
            ["bash", "-c", example[0]],
            env={**os.environ, "CURL_HOME": str(tmp_path), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        body, _, status = done.stdout.rpartition("\n")
        statuses.append(int(status))
        replies.append(json.loads(body))
    assert statuses == [200, 200, 200, 422]
    shown = json.loads(re.findall(r"^```json\n(.*?)^```", PAGE, re.M | re.S)[0])
    assert replies[0]["usage"] == shown["usage"]
    assert {key: list(answer) for key, answer in replies[0]["answers"].items()} == {
        key: list(answer) for key, answer in shown["answers"].items()
    }
    assert replies[0]["model"] == shown["model"]


def test_a_length_that_no_question_fits_into_is_refused(artifact: Path) -> None:
    decision = open_artifact(artifact).manifest.decision
    assert decision is not None
    refusal = f"--max-sequence-length 20: expected at least {decision.limits.head_max_len + 1}"
    with (
        pytest.raises(RuntimeError, match=refusal),
        ServerProcess(artifact, "--max-sequence-length", "20"),
    ):
        pass
