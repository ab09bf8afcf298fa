"""The table and the JSON of `inspect`, on hosts that can and cannot run the artifact."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fake_decision import make_decision
from infinity_v3.artifacts.codec import encode_manifest
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.artifacts.manifest import Heads, Kind, LateInteraction, ScoreActivation
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler.inspection import (
    inspect_artifact,
    inspection_to_json,
    inspection_to_text,
    shown_bytes,
)

TARGET = "cpu-x86_64-avx2-f32"
ABLE = HostCapabilities(arch="x86_64", isa=frozenset({"avx2", "fma"}), torch_version="2.13.0+cpu")
UNABLE = replace(ABLE, isa=frozenset())


def table(artifact: Artifact, host: HostCapabilities) -> list[str]:
    text = inspection_to_text(inspect_artifact(artifact, host))
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_table_says_it_all(sample_artifact: Artifact) -> None:
    lines = table(sample_artifact, ABLE)
    files = sample_artifact.manifest.targets[0].files
    num_bytes = sum(file.num_bytes for file in files)
    (engine,) = (file for file in files if file.path.endswith("model.so"))
    for expected in (
        "name sample",
        "kind embedding",
        f"id {sample_artifact.artifact_id}",
        "architecture BertModel (bert)",
        "parameters 1,000",
        "max input 64 tokens (sentence_bert_config.json)",
        "pooling mean",
        "alternatives cls",
        "dimensions 8",
        "normalized yes",
        f"target {TARGET}",
        "engine aoti on cpu, float32",
        "requires x86_64 avx2 fma torch 2.13",
        "limits 16384 tokens, 256 inputs",
        f"size {num_bytes} B",
        "parity passed on 3 probes against transformers fp32 eager",
        "pooled.max_abs 1.25e-06",
        "this host runs it",
        "repository local",
        "license apache-2.0",
        "compiler g++ 13.2.0",
        "at 2025-01-02T03:04:05+00:00",
        "on Test CPU",
        "label team search",
        "warning cls assumed",
    ):
        assert expected in lines
    assert any(
        line.startswith(f"targets/{TARGET}/model.so {engine.num_bytes} B ") for line in lines
    )
    assert not any("None" in line for line in lines)


HEADS: list[tuple[Heads, list[str]]] = [
    (
        Heads(labels=("cat", "dog"), activation=ScoreActivation.SOFTMAX),
        ["labels cat, dog", "activation softmax"],
    ),
    (
        Heads(labels=tuple(f"L{i}" for i in range(20)), activation=ScoreActivation.SIGMOID),
        ["labels L0, L1, L2, L3, L4, L5, L6, L7 and 12 more", "activation sigmoid"],
    ),
    (
        Heads(labels=("Yes",), opposite_label="No", activation=ScoreActivation.SIGMOID),
        ["labels Yes against No", "activation sigmoid"],
    ),
    (
        Heads(
            dimensions=128,
            normalize=True,
            late_interaction=LateInteraction(
                query_length=32, document_length=180, query_expansion_id=103, skipped_ids=(5, 6)
            ),
        ),
        [
            "dimensions 128",
            "normalized yes",
            "queries cut to 32 tokens",
            "documents cut to 180 tokens",
            "expansion filled up with token 103, not seen by the others",
            "skipped 2 tokens of documents get no vector",
        ],
    ),
    (Heads(late_interaction=LateInteraction(document_length=9)), ["documents cut to 9 tokens"]),
]


@pytest.mark.parametrize(("heads", "expected"), HEADS)
def test_the_table_says_what_heads_do(
    sample_artifact: Artifact, heads: Heads, expected: list[str]
) -> None:
    manifest = replace(sample_artifact.manifest, heads=heads)
    lines = table(replace(sample_artifact, manifest=manifest), ABLE)
    start = lines.index("heads") + 1
    assert lines[start : start + len(expected) + 1] == [*expected, ""]


def test_the_table_says_what_the_host_lacks(sample_artifact: Artifact) -> None:
    (line,) = [line for line in table(sample_artifact, UNABLE) if line.startswith("this host")]
    assert line.startswith("this host cannot run it: needs the CPU feature avx2")


def test_json_holds_manifest_build_and_host(sample_artifact: Artifact) -> None:
    document = json.loads(json.dumps(inspection_to_json(inspect_artifact(sample_artifact, UNABLE))))
    assert document["id"] == sample_artifact.artifact_id
    assert document["manifest"] == json.loads(encode_manifest(sample_artifact.manifest))
    assert document["build"]["labels"] == {"team": "search"}
    assert document["host"][TARGET]["runs"] is False
    assert "avx2" in document["host"][TARGET]["reason"]
    runs = inspection_to_json(inspect_artifact(sample_artifact, ABLE))["host"]
    assert runs == {TARGET: {"runs": True, "reason": None}}


@pytest.fixture
def copy(sample_artifact: Artifact, tmp_path: Path) -> Artifact:
    path = Path(shutil.copytree(sample_artifact.path, tmp_path / "copy"))
    return replace(sample_artifact, path=path)


def test_an_artifact_without_a_build_record(copy: Artifact) -> None:
    (copy.path / "build.json").unlink()
    lines = table(copy, ABLE)
    assert "parity passed on 3 probes against transformers fp32 eager" in lines
    assert not any(line.startswith("at ") for line in lines)


@pytest.mark.parametrize("text", ['{"host": 3, "labels": [], "parity": 1, "warnings": "x"}', "{}"])
def test_an_odd_build_record_is_harmless(copy: Artifact, text: str) -> None:
    (copy.path / "build.json").write_text(text)
    assert "name sample" in table(copy, ABLE)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_build_record_that_is_none(copy: Artifact, text: str) -> None:
    (copy.path / "build.json").write_text(text)
    with pytest.raises(RefusedError, match=r"build\.json"):
        inspect_artifact(copy, ABLE)


@pytest.mark.parametrize(
    ("num_bytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 40, "3072.0 GiB"),
    ],
)
def test_sizes_for_people(num_bytes: int, shown: str) -> None:
    assert shown_bytes(num_bytes) == shown


def test_a_decision_model_shows_its_protocol(sample_artifact: Artifact) -> None:
    manifest = replace(
        sample_artifact.manifest, kind=Kind.DECISION, heads=Heads(), decision=make_decision()
    )
    lines = table(replace(sample_artifact, manifest=manifest), ABLE)
    assert "protocol laya (laya-sequence-1)" in lines
    assert "tokens 64 a sequence, 40 of them for the question" in lines
    assert "decision" in lines
    assert "heads" not in lines
