"""References in place of a path: when a registry is asked, and what contradicts them."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fake_artifact import write_fake_artifact
from infinity_v3.artifacts.errors import InfinityError, RefusedError, UsageError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.server.children import Children, make_children
from infinity_v3.server.compile_child import CompileChild
from infinity_v3.server.config import ModelConfig
from infinity_v3.server.config_merge import load_configuration
from infinity_v3.server.model_source import SourceKind, find_source
from infinity_v3.server.pulled import PulledArtifact
from infinity_v3.server.registry_child import (
    FollowBeat,
    FollowNews,
    FollowTrouble,
    RegistryAccess,
    RegistryChild,
)
from infinity_v3.server.registry_options import check_registry_options, check_watched
from infinity_v3.server.resolve import Resolver
from infinity_v3.server.tool import LineReader, Tool, ToolEnd

HOST = HostCapabilities(arch="x86_64", isa=frozenset({"avx2", "fma"}), torch_version="2.13.0")
DIGITS = "ab" * 32


class FakeTool(Tool):
    """Prints what it is told to, and remembers what it was asked."""

    def __init__(self, *lines: str, code: int = 0, sentence: str = "") -> None:
        super().__init__()
        self.lines = lines
        self.end = ToolEnd(code=code, sentence=sentence)
        self.commands: list[list[str]] = []
        self.environs: list[Mapping[str, str]] = []

    def run(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        on_line: LineReader = print,
        *,
        ends_with_us: bool = False,
    ) -> ToolEnd:
        self.commands.append(list(arguments))
        self.environs.append(environ)
        for line in self.lines:
            on_line(line)
        return self.end


def line_of(path: Path, **changes: object) -> str:
    import json

    facts: dict[str, object] = {
        "id": f"sha256:{DIGITS}",
        "name": "tiny",
        "version": "1",
        "channel": "prod",
        "event": 3,
        "path": str(path),
    }
    return json.dumps({**facts, **changes})


def child_of(tool: FakeTool, tmp_path: Path, **access: Any) -> RegistryChild:  # noqa: ANN401  # fields by name
    given = {"location": "s3://here", "cache": tmp_path, "watch_interval_s": 5.0, **access}
    return RegistryChild(RegistryAccess(**given), tool)


def children_of(tool: FakeTool, tmp_path: Path, *, has_registry: bool = True) -> Children:
    return Children(
        compiler=CompileChild(None, tool),
        registry=child_of(tool, tmp_path),
        has_registry=has_registry,
    )


@pytest.mark.parametrize(
    ("model_id", "reference"),
    [
        ("tiny:prod", Reference(name="tiny", channel="prod")),
        ("tiny==1.0+cpu", Reference(name="tiny", version="1.0+cpu")),
        (f"tiny@sha256:{DIGITS}", Reference(name="tiny", id=f"sha256:{DIGITS}")),
    ],
)
def test_marked_values_are_references(model_id: str, reference: Reference) -> None:
    source = find_source(model_id, None)
    assert (source.kind, source.reference) == (SourceKind.REFERENCE, reference)


def test_a_directory_goes_before_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_fake_artifact(tmp_path / "tiny:prod")
    assert find_source("tiny:prod", None).kind is SourceKind.ARTIFACT


@pytest.mark.parametrize(
    ("model_id", "revision", "reference"),
    [
        ("tiny", None, Reference(name="tiny")),
        ("tiny", "main", None),
        ("org/tiny", None, None),
    ],
)
def test_what_a_registry_could_know(
    model_id: str, revision: str | None, reference: Reference | None
) -> None:
    source = find_source(model_id, revision)
    assert (source.kind, source.reference) == (SourceKind.HUB, reference)


def settle(model_id: str, children: Children, cache: Path) -> tuple[SourceKind, Resolver]:
    config = ModelConfig(model_id=model_id)
    resolver = Resolver(cache, HOST, children)
    return resolver.check(find_source(model_id, None), config).kind, resolver


def test_a_bare_name_that_the_registry_knows(tmp_path: Path) -> None:
    path = write_fake_artifact(tmp_path / "pulled" / DIGITS)
    tool = FakeTool(line_of(path))
    kind, resolver = settle("tiny", children_of(tool, tmp_path), tmp_path)
    assert kind is SourceKind.REFERENCE
    place = ("--registry", "s3://here", "--cache", str(tmp_path))
    assert tool.commands == [["registry", "pull", "tiny", *place, "--json", "--if-present"]]
    source = find_source("tiny:prod", None)
    found = resolver.resolve(source, ModelConfig(model_id="tiny:prod"))
    assert found.path == path
    assert found.use is not None
    found.use.end()


def test_a_bare_name_that_it_does_not_know(tmp_path: Path) -> None:
    tool = FakeTool()
    assert settle("tiny", children_of(tool, tmp_path), tmp_path)[0] is SourceKind.HUB
    assert len(tool.commands) == 1


@pytest.mark.parametrize(("model_id", "has_registry"), [("tiny", False), ("org/tiny", True)])
def test_no_registry_is_asked_in_vain(tmp_path: Path, model_id: str, has_registry: bool) -> None:
    tool = FakeTool()
    children = children_of(tool, tmp_path, has_registry=has_registry)
    assert settle(model_id, children, tmp_path)[0] is SourceKind.HUB
    assert tool.commands == []


def test_the_default_registry_counts_where_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def children(**given: list[str]) -> Children:
        return make_children(load_configuration({"model-id": ["tiny"], **given}, {}).serve, Tool())

    assert not children().has_registry
    assert children(registry=["s3://here"]).has_registry
    marker = tmp_path / "infinity_v3" / "registry" / "registry.json"
    marker.parent.mkdir(parents=True)
    marker.write_text("{}")
    assert children().has_registry


def test_the_childs_sentence_is_passed_on(tmp_path: Path) -> None:
    tool = FakeTool(code=3, sentence="tiny:prd: no such channel; channels: prod")
    with pytest.raises(RefusedError) as caught:
        child_of(tool, tmp_path).pull(Reference(name="tiny", channel="prd"))
    assert str(caught.value) == "--model-id tiny:prd: no such channel; channels: prod"


def test_what_the_child_may_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "AWS_SECRET_ACCESS_KEY": "a",
        "GOOGLE_APPLICATION_CREDENTIALS": "g",
        "AZURE_STORAGE_KEY": "z",
        "FSSPEC_S3_ENDPOINT_URL": "f",
        "XDG_DATA_HOME": "/d",
        "HF_TOKEN": "h",
    }
    hidden = {"INFINITY_API_KEY": "k", "INFINITY_REGISTRY": "r", "OTHER_SECRET": "s"}
    for name in tuple(os.environ):
        monkeypatch.delenv(name)
    for name, value in {**given, **hidden}.items():
        monkeypatch.setenv(name, value)
    tool = FakeTool(line_of(tmp_path))
    key = tmp_path / "public.pem"
    child = child_of(tool, tmp_path, location=None, key=key, hub_cache=Path("/hub"))
    child.pull(Reference(name="tiny"))
    assert tool.environs == [{**given, "HF_HUB_CACHE": "/hub"}]
    assert tool.commands[0][3:] == ["--cache", str(tmp_path), "--key", str(key), "--json"]


def test_what_following_tells(tmp_path: Path) -> None:
    tool = FakeTool(
        line_of(tmp_path),
        '{"error": "the disk is full", "exit_code": 1}',
        '{"error": "not signed", "exit_code": 3}',
        '{"next_within_s": 30.0}',
        "half a li",
        code=1,
        sentence="gone",
    )
    heard: list[FollowNews] = []
    child = child_of(tool, tmp_path)
    with pytest.raises(InfinityError, match="following tiny:prod: gone"):
        child.follow(Reference(name="tiny", channel="prod"), heard.append)
    assert heard == [
        PulledArtifact(
            path=tmp_path, id=f"sha256:{DIGITS}", name="tiny", version="1", channel="prod", event=3
        ),
        FollowTrouble(sentence="the disk is full", is_refusal=False),
        FollowTrouble(sentence="not signed", is_refusal=True),
        FollowBeat(next_within_s=30.0),
    ]
    assert tool.commands[0][-3:] == ["--interval", "5.0", "--until-eof"]


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("model_id", ["tiny==1", f"tiny@sha256:{DIGITS}"])
def test_one_artifact_cannot_be_watched(model_id: str) -> None:
    flags = {"model-id": [model_id], "watch-channel": ["true"]}
    assert refusal(lambda: load_configuration(flags, {})) == (
        "--watch-channel true (command line): follows a channel, but --model-id "
        f"{model_id} (command line) names one artifact for good; write tiny:CHANNEL, or drop one"
    )


def test_what_comes_from_no_registry_cannot_be_watched(tmp_path: Path) -> None:
    path = write_fake_artifact(tmp_path / "artifact")
    for model_id, what in ((str(path), "an artifact directory"), ("org/name", "a hub id")):
        config = ModelConfig(model_id=model_id, watch_channel=True)
        source = find_source(model_id, None)
        found = refusal(partial(check_registry_options, config, source, None))
        assert found == (
            "--watch-channel: follows a channel of a registry, but --model-id "
            f"{model_id} is {what}; give name:channel, or drop it"
        )


def test_a_name_without_a_channel_cannot_be_watched(tmp_path: Path) -> None:
    pulled = PulledArtifact(path=tmp_path, id=f"sha256:{DIGITS}", name="tiny", version="1")
    config = ModelConfig(model_id="tiny", watch_channel=True)
    assert "has no channel prod yet" in refusal(lambda: check_watched(config, pulled))


def test_nobody_signs_a_hub_id() -> None:
    source, config = find_source("org/name", None), ModelConfig(model_id="org/name")
    found = refusal(lambda: check_registry_options(config, source, Path("key.pem")))
    assert found == (
        "--require-signature key.pem: --model-id org/name is a hub id, which nobody signs; compile "
        "it, push and sign the artifact, and give its reference"
    )
