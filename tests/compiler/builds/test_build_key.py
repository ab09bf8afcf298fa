"""A build key changes with everything that changes an artifact, and with nothing else."""

import shutil
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest

from build_plans import TARGET, make_entry
from infinity_v3.artifacts.decision import DecisionProtocol
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.compiler.builds.build_key import (
    ToolState,
    build_inputs,
    key_of_build,
    tool_state,
    version_of,
)
from infinity_v3.compiler.builds.entry import ModelEntry
from infinity_v3.compiler.builds.sources import SourceState, read_source
from infinity_v3.compiler.cpu_targets import CpuTarget
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.request import CompileRequest

TOOL = ToolState(release="3.0.0", torch="2.13", transformers="5.24", arch="x86_64", kernel_abi="3")
CHANGED: Mapping[str, object] = {
    "name": "other",
    "task": Kind.RERANKER,
    "pooling": (PoolingMode.CLS,),
    "yes_token": "ja",
    "no_token": "nein",
    "max_sequence_length": 9,
    "embed_limit_mb": 1,
    "keep_program": True,
    "decision_protocol": DecisionProtocol.LAYA,
}
SAME: Mapping[str, object] = {
    "out": Path("elsewhere"),
    "labels": {"b": "2", "a": "1"},
    "kernel_cache": Path("kernels"),
    "threads": 3,
}
RESOLVED = {"checkpoint", "revision", "targets"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """What a compile would read, as far as a key is concerned."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "README.md").write_text("---\nlicense: mit\n---\nText.\n")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def digest_of(target: CpuTarget) -> str:
    return f"kernels of {target.name}"


def entry_of(checkpoint: Path, **request: object) -> ModelEntry:
    return make_entry(str(checkpoint), request={"targets": (TARGET,), **request})


def key(checkpoint: Path, **request: object) -> str:
    return key_with(TOOL, checkpoint, **request)


def key_with(tool: ToolState, checkpoint: Path, **request: object) -> str:
    entry = entry_of(checkpoint, **request)
    source = read_source(entry, SilentProgress())
    return build_inputs(entry.request, source, tool, digest_of).key


def test_every_field_of_a_request_is_decided_here() -> None:
    known = {field.name for field in fields(CompileRequest)}
    assert known <= {*CHANGED, *SAME, *RESOLVED}, "decide what a new option does to the key"


@pytest.mark.parametrize("field", [f.name for f in fields(CompileRequest) if f.name in CHANGED])
def test_what_shapes_the_artifact_changes_the_key(checkpoint: Path, field: str) -> None:
    assert key(checkpoint, **{field: CHANGED[field]}) != key(checkpoint)


@pytest.mark.parametrize("field", [name for name in SAME if name != "out"])
def test_what_does_not_leaves_it(checkpoint: Path, field: str) -> None:
    assert key(checkpoint, **{field: SAME[field]}) == key(checkpoint)


def test_labels_in_another_order(checkpoint: Path) -> None:
    one, other = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    assert key(checkpoint, labels=one) == key(checkpoint, labels=other)


def test_the_same_files_elsewhere(checkpoint: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(checkpoint, tmp_path / "copied" / "again"))
    assert key(copied) == key(checkpoint)


def test_a_link_to_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(checkpoint)
    assert key(link) == key(checkpoint)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_one_byte_of_a_file(checkpoint: Path, name: str) -> None:
    before = key(checkpoint)
    path = checkpoint / name
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert key(checkpoint) != before


def test_a_file_more(checkpoint: Path) -> None:
    before = key(checkpoint)
    (checkpoint / "vocab.txt").write_text("a\n")
    assert key(checkpoint) != before


def test_what_no_compile_reads(checkpoint: Path) -> None:
    before = key(checkpoint)
    (checkpoint / "notes.txt").write_text("a\n")
    (checkpoint / "README.md").write_text("---\nlicense: mit\n---\nOther text.\n")
    assert key(checkpoint) == before
    (checkpoint / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    assert key(checkpoint) != before, "the licence stands in the manifest"


@pytest.mark.parametrize("field", [field.name for field in fields(ToolState)])
def test_the_tool(checkpoint: Path, field: str) -> None:
    changed = replace(TOOL, **{field: "other"})
    assert key_with(changed, checkpoint) != key(checkpoint)


def test_kernels_and_targets(checkpoint: Path) -> None:
    entry = entry_of(checkpoint)
    source = read_source(entry, SilentProgress())
    one = build_inputs(entry.request, source, TOOL, digest_of)
    other = build_inputs(entry.request, source, TOOL, lambda target: f"other {target.name}")
    assert list(one.targets) == [TARGET]
    assert one.key != other.key
    every = build_inputs(replace(entry.request, targets=()), source, TOOL, digest_of)
    assert TARGET in every.targets


def test_hub_ids_by_their_commit() -> None:
    entry = make_entry(request={"targets": (TARGET,)})

    def key_at(repository: str, commit: str) -> str:
        source = SourceState(repository=repository, revision=commit, files={}, license=None)
        return build_inputs(entry.request, source, TOOL, digest_of).key

    assert key_at("org/one", "a") == key_at("org/one", "a")
    assert len({key_at("org/one", "a"), key_at("org/one", "b"), key_at("org/two", "a")}) == 3


def test_this_host_says_what_it_compiles_with() -> None:
    tool = tool_state()
    assert tool.torch.count(".") == 1
    assert tool.transformers.count(".") == 1
    assert tool.release[0].isdigit()


def test_versions_follow_from_the_key() -> None:
    entry = make_entry(version="2026-{key}")
    assert version_of(entry, "0123456789abcdef" * 4) == "2026-0123456789ab"
    assert version_of(make_entry(), "0" * 64) == "1.0"


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        ({"labels": {"build-key": "abc"}}, "abc"),
        ({"labels": {"build-key": 3}}, None),
        ({"labels": {}}, None),
        ({"labels": []}, None),
        ({}, None),
    ],
)
def test_the_key_in_a_build_json(build: Mapping[str, object], expected: str | None) -> None:
    assert key_of_build(build) == expected


def test_files_are_hashed_once(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_source(entry_of(checkpoint), SilentProgress())

    def nobody_hashes(_descriptor: int) -> str:
        raise AssertionError("a file that did not change was read again")

    monkeypatch.setattr("infinity_v3.compiler.builds.sources.sha256_of", nobody_hashes)
    assert read_source(entry_of(checkpoint), SilentProgress()) == first


def test_expected_digests(checkpoint: Path) -> None:
    digests = read_source(entry_of(checkpoint), SilentProgress()).files
    right = {"model.safetensors": digests["model.safetensors"]}
    read_source(replace(entry_of(checkpoint), expected_files=right), SilentProgress())
    for wrong, sentence in (
        ({"model.safetensors": "0" * 64}, f"expected sha256 {'0' * 64}, found "),
        ({"model.bin": "0" * 64}, "expect: model.bin: expected a file that a compile reads of "),
    ):
        with pytest.raises(RefusedError, match=sentence):
            read_source(replace(entry_of(checkpoint), expected_files=wrong), SilentProgress())


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        read_source(entry_of(tmp_path / "none"), SilentProgress())
