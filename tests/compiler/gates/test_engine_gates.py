"""Gates that run the candidate, with real engines and a real server."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from compiled import CompiledArtifacts, infinity_compile
from gate_registry import ACTOR, make_registry
from infinity_v3.artifacts.codec import decode_manifest, encode_manifest
from infinity_v3.artifacts.layout import BUILD_FILE, MANIFEST_FILE
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.store import open_artifact
from tampering import copy_artifact
from tiny_artifacts import FLOAT32_TARGET, SMALL, TinyArtifact, make_artifact

NAME = "tiny"
POLICY = """
[channels.prod]
max-abs = 2e-5
golden-requests = "golden/{name}.jsonl"
max-p50-slowdown = 1.5
min-throughput-ratio = 0.6
[channels.staging]
"""
REQUESTS = [
    {"path": "/embed", "body": {"inputs": "hello world"}},
    {"path": "/v1/embeddings", "body": {"input": ["a b", "c"], "model": NAME}},
    {"path": "/embed", "body": {"inputs": ["one", "two"], "normalize": False}},
]
DEEP = replace(SMALL, key="tiny-deep", traits={"max_positions": 32, "num_layers": 12})
"""As SMALL with twelve times its layers: slower by its nature."""
Json = Any


@dataclass(frozen=True, kw_only=True)
class Place:
    registry: Registry
    folder: Path

    def push(self, artifact: Path, version: str, build: Mapping[str, object] | None = None) -> None:
        """Push a copy of an artifact under the name that all share."""
        copy = copy_artifact(artifact, self.folder / version)
        manifest = decode_manifest((copy / MANIFEST_FILE).read_bytes())
        (copy / MANIFEST_FILE).write_bytes(encode_manifest(replace(manifest, name=NAME)))
        if build is not None:
            (copy / BUILD_FILE).write_text(json.dumps(build))
        self.registry.push(open_artifact(copy), version, actor=ACTOR)

    def run(self, *arguments: str | Path) -> tuple[int, Json]:
        result = infinity_compile(
            "registry", *arguments, "--registry", self.registry.location, "--json"
        )
        assert result.stdout, result.stderr
        return result.returncode, json.loads(result.stdout)

    def promote(self, version: str, *options: str) -> tuple[int, Json]:
        return self.run("promote", NAME, "--version", version, "--to", "prod", *options)

    def pointed_to(self) -> str | None:
        event = self.registry.channel(NAME, "prod").event
        return None if event is None else event.version


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Place(registry=make_registry(tmp_path / "registry", POLICY), folder=tmp_path / "copies")


@pytest.fixture(scope="session")
def deep(compiled_artifact: CompiledArtifacts) -> TinyArtifact:
    return make_artifact(compiled_artifact, DEEP)


def gates(document: Json) -> dict[str, Json]:
    return {gate["gate"]: gate for gate in document["gates"]}


def test_an_artifact_passes_against_itself_and_others_fail(
    place: Place, small: TinyArtifact, other: TinyArtifact, deep: TinyArtifact, tmp_path: Path
) -> None:
    place.push(small.artifact, "1.0")
    asked, recorded = tmp_path / "asked.jsonl", tmp_path / "golden.jsonl"
    asked.write_text("".join(json.dumps(request) + "\n" for request in REQUESTS))
    code, document = place.run(
        "record-golden", f"{NAME}==1.0", "--requests", asked, "--out", recorded
    )
    assert (code, document["requests"]) == (0, len(REQUESTS))
    place.registry.storage.create("golden/tiny.jsonl", recorded.read_bytes())

    code, document = place.promote("1.0")
    found = gates(document)
    assert (code, document["failed"]) == (0, [])
    assert found["min-golden-agreement"]["candidate"] == f"1 ({len(REQUESTS)} of {len(REQUESTS)})"
    assert found["max-p50-slowdown"]["detail"] == "nothing to compare with: the channel is empty"
    event = place.registry.event(NAME, document["event"])
    assert event.notes == {"golden-requests": document["golden"]}

    # The same engine under another version: as fast, whatever else this host does.
    place.push(small.artifact, "1.1")
    code, document = place.promote("1.1")
    found = gates(document)
    assert (code, place.pointed_to()) == (0, "1.1"), document
    for gate in ("max-p50-slowdown", "min-throughput-ratio"):
        assert found[gate]["subject"] == FLOAT32_TARGET
        assert found[gate]["detail"].startswith("ratio ")
        assert found[gate]["current"] is not None

    # Other weights give other vectors.
    place.push(other.artifact, "2.0")
    code, document = place.promote("2.0")
    found = gates(document)
    assert (code, document["failed"]) == (4, ["min-golden-agreement"])
    assert found["min-golden-agreement"]["candidate"] == f"0 (0 of {len(REQUESTS)})"
    assert (
        "line 1, /embed: [0]: expected >= 0.999, found cosine"
        in (found["min-golden-agreement"]["detail"])
    )
    assert found["max-p50-slowdown"]["verdict"] == "not run"

    # Twelve layers instead of one are slower.
    place.registry.storage.replace(
        paths.POLICY,
        b"[channels.prod]\nmax-p50-slowdown = 1.5\nmin-throughput-ratio = 0.6\n",
    )
    place.push(deep.artifact, "3.0")
    code, document = place.promote("3.0", "--dry-run")
    assert code == 4
    assert document["failed"] == ["max-p50-slowdown", "min-throughput-ratio"], document
    assert place.pointed_to() == "1.1"


def test_worse_parity_on_purpose_is_refused_and_changes_nothing(
    place: Place, small: TinyArtifact
) -> None:
    place.registry.storage.replace(paths.POLICY, b"[channels.prod]\nmax-abs = 2e-5\n")
    build: Json = json.loads((small.artifact / BUILD_FILE).read_text())
    place.push(small.artifact, "1.0")
    assert place.promote("1.0")[0] == 0
    for figures in build["parity"].values():
        figures["pooled.max_abs"] = 3e-5
    place.push(small.artifact, "2.0", build=build)
    before = [event.seq for event in place.registry.events(NAME)]
    code, document = place.promote("2.0")
    assert (code, document["failed"]) == (4, ["max-abs"])
    assert gates(document)["max-abs"]["candidate"] == "3e-05"
    assert gates(document)["max-abs"]["bound"] == "<= 2e-05"
    assert place.pointed_to() == "1.0"
    assert [event.seq for event in place.registry.events(NAME)] == before


def test_a_request_that_is_not_answered_is_not_recorded(
    place: Place, small: TinyArtifact, tmp_path: Path
) -> None:
    place.push(small.artifact, "1.0")
    asked, out = tmp_path / "asked.jsonl", tmp_path / "golden.jsonl"
    asked.write_text('{"path": "/embed", "body": {"inputs": "a"}}\n{"path": "/no", "body": {}}\n')
    result = infinity_compile(
        *("registry", "record-golden", NAME, "--registry", place.registry.location),
        *("--requests", asked, "--out", out),
    )
    assert (result.returncode, result.stdout) == (3, "")
    assert (
        f"error: {asked}: line 2: /no: expected an answer to record, found status 404"
        in result.stderr
    )
    assert not out.exists()
