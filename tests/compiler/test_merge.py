"""Joining artifacts: what must be equal, what is taken, and that order does not matter."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fake_artifact import make_manifest, make_target, write_fake_files
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.manifest import Manifest, Precision, Target
from infinity_v3.artifacts.profile import Profile, TargetProfile, profile_to_json, read_profile
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.artifacts.writer import ArtifactWriter, describe_files
from infinity_v3.compiler.programs.merge import MergeRequest, merge_artifacts
from infinity_v3.compiler.progress import SilentProgress

AVX2, AVX512, BF16 = "cpu-x86_64-avx2-f32", "cpu-x86_64-avx512-f32", "cpu-x86_64-avx512-bf16"


def with_flags(manifest: Manifest) -> Manifest:
    flags = tuple(f"{target.name}: -O3" for target in manifest.targets)
    return replace(manifest, provenance=replace(manifest.provenance, flags=flags))


def publish(
    path: Path,
    targets: Sequence[Target],
    *,
    build: Mapping[str, object] | None = None,
    profile: Mapping[str, TargetProfile] | None = None,
    **overrides: object,
) -> Artifact:
    manifest = with_flags(make_manifest(targets=tuple(targets), **overrides))
    with ArtifactWriter(path) as writer:
        write_fake_files(writer.stage, manifest)
        return writer.commit(
            manifest,
            profile=profile_to_json(Profile(targets=profile or {})),
            build=build or {},
        )


def merge(out: Path, *artifacts: Artifact, labels: Mapping[str, str] | None = None) -> Artifact:
    request = MergeRequest(out=out, labels=labels or {})
    return merge_artifacts(artifacts, request, SilentProgress())


def cli(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("infinity-compile")
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def avx2_only(tmp_path: Path) -> Artifact:
    return publish(tmp_path / "one", [make_target(AVX2)])


@pytest.fixture
def avx512_only(tmp_path: Path) -> Artifact:
    return publish(tmp_path / "two", [make_target(AVX512)])


def test_a_merge_is_what_one_compile_would_give(tmp_path: Path) -> None:
    bf16 = make_target(BF16, precision=Precision.BFLOAT16)
    whole = [bf16, make_target(AVX512), make_target(AVX2)]
    expected = publish(tmp_path / "whole", whole)
    parts = [publish(tmp_path / target.name, [target]) for target in whole]
    forwards = merge(tmp_path / "forwards", *parts)
    backwards = merge(tmp_path / "backwards", *reversed(parts))
    assert forwards.artifact_id == backwards.artifact_id == expected.artifact_id
    assert open_artifact(tmp_path / "forwards").manifest == expected.manifest
    for path in expected.path.rglob("*"):
        if path.is_file() and path.name != "build.json":
            copy = tmp_path / "forwards" / path.relative_to(expected.path)
            assert copy.read_bytes() == path.read_bytes()


def test_shared_weights_are_taken_once(tmp_path: Path) -> None:
    parts = [
        publish(tmp_path / name, [make_target(name, weights=Precision.FLOAT32)])
        for name in (AVX2, AVX512)
    ]
    merged = merge(tmp_path / "out", *parts)
    assert [weights.precision for weights in merged.manifest.weights] == [Precision.FLOAT32]
    assert [target.weights for target in merged.manifest.targets] == [Precision.FLOAT32] * 2


def test_the_same_target_is_taken_once(avx2_only: Artifact, tmp_path: Path) -> None:
    target = make_target(AVX2)
    again = replace(target, parity=replace(target.parity, reference="another run"))
    other = publish(tmp_path / "again", [again, make_target(AVX512)])
    one = merge(tmp_path / "out", avx2_only, other)
    two = merge(tmp_path / "turned", other, avx2_only)
    assert [target.name for target in one.manifest.targets] == [AVX512, AVX2]
    assert one.artifact_id == two.artifact_id


def other_engine(path: Path) -> Artifact:
    manifest = make_manifest(targets=(make_target(AVX2),))
    with ArtifactWriter(path) as writer:
        write_fake_files(writer.stage, manifest)
        (writer.stage / manifest.targets[0].entry).write_bytes(b"another engine")
        files = describe_files(writer.stage)
        own = tuple(file for file in files if file.path.startswith("targets/"))
        changed = replace(manifest, files=files, targets=(replace(manifest.targets[0], files=own),))
        return writer.commit(changed, profile={}, build={})


def test_one_target_with_other_files_is_refused(avx2_only: Artifact, tmp_path: Path) -> None:
    other = other_engine(tmp_path / "other")
    with pytest.raises(RefusedError) as caught:
        merge(tmp_path / "out", avx2_only, other)
    assert f"these differ in targets: {AVX2}.files[1].bytes: 29 in " in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_another_kernel_abi_of_one_target_is_refused(avx2_only: Artifact, tmp_path: Path) -> None:
    target = make_target(AVX2)
    changed = replace(target, requires=replace(target.requires, kernel_abi="9"))
    other = publish(tmp_path / "other", [changed])
    message = rf"targets: {AVX2}.requires.kernel_abi: \"1\" in .*, \"9\" in "
    with pytest.raises(RefusedError, match=message.replace('\\"', "'")):
        merge(tmp_path / "out", avx2_only, other)


MODEL = make_manifest()
DIFFERENT: Mapping[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "other"}, "name: 'fake-encoder' in .*, 'other' in "),
    "model": (
        {"model": replace(MODEL.model, max_input_tokens=32)},
        r"model\.max_input_tokens: 64 in .*, 32 in ",
    ),
    "heads": ({"heads": replace(MODEL.heads, normalize=False)}, r"heads\.normalize: true in .*, f"),
    "prompts": (
        {"prompts": replace(MODEL.prompts, named={"query": "other: "})},
        r"prompts\.named\.query: 'query: ' in .*, 'other: ' in ",
    ),
    "tokenizer": (
        {"tokenizer": replace(MODEL.tokenizer, truncation_side="left")},
        r"tokenizer\.truncation_side: 'right' in .*, 'left' in ",
    ),
    "graph": (
        {"graph": replace(MODEL.graph, inputs=MODEL.graph.inputs[:1])},
        r"graph\.inputs: 2 entries in .*, 1 entries in ",
    ),
    "source": (
        {"source": replace(MODEL.source, files=(replace(MODEL.source.files[0], sha256="0" * 64),))},
        r"source\.files\[0\]\.sha256: '2e7d2c03a9507ae265ecf5b5356885a53393\.\.\. in .*, '00000",
    ),
    "revision": (
        {"source": replace(MODEL.source, revision="1" * 40)},
        r"source\.revision: null in .*, '1111",
    ),
}


@pytest.mark.parametrize("key", DIFFERENT)
def test_artifacts_of_different_models_are_refused_by_key(
    avx2_only: Artifact, tmp_path: Path, key: str
) -> None:
    overrides, message = DIFFERENT[key]
    other = publish(tmp_path / "other", [make_target(AVX512)], **overrides)
    with pytest.raises(RefusedError, match=f"these differ in {message}"):
        merge(tmp_path / "out", avx2_only, other)
    assert not (tmp_path / "out").exists()


def test_another_tokenizer_is_refused_by_file(avx2_only: Artifact, tmp_path: Path) -> None:
    manifest = make_manifest(targets=(make_target(AVX512),))
    with ArtifactWriter(tmp_path / "other") as writer:
        write_fake_files(writer.stage, manifest)
        (writer.stage / "tokenizer" / "tokenizer.json").write_bytes(b'{"model":{} }')
        changed = replace(manifest, files=describe_files(writer.stage))
        other = writer.commit(changed, profile={}, build={})
    with pytest.raises(RefusedError, match=r"these differ in files: tokenizer/tokenizer\.json: '"):
        merge(tmp_path / "out", avx2_only, other)


def test_versions_that_differ_stand_with_their_target(avx2_only: Artifact, tmp_path: Path) -> None:
    provenance = replace(MODEL.provenance, compiler="g++ 14", flags=(f"{AVX512}: -O3",))
    manifest = replace(make_manifest(targets=(make_target(AVX512),)), provenance=provenance)
    with ArtifactWriter(tmp_path / "other") as writer:
        write_fake_files(writer.stage, manifest)
        other = writer.commit(manifest, profile={}, build={})
    one = merge(tmp_path / "out", avx2_only, other)
    assert one.manifest.provenance.compiler == "g++ 14", "of the best target"
    assert one.manifest.provenance.flags == (
        f"{AVX512}: -O3",
        f"{AVX2}: -O3 compiler=g++_13.2.0",
    )
    assert merge(tmp_path / "turned", other, avx2_only).artifact_id == one.artifact_id


def record(label: str, figure: float, target: str) -> dict[str, object]:
    return {
        "built_at": "2025-01-02T03:04:05+00:00",
        "host": {"cpu_model": label},
        "labels": {"team": label},
        "warnings": ["cls assumed"],
        "parity": {target: {"pooled.max_abs": figure}},
    }


def test_records_are_joined(tmp_path: Path) -> None:
    one = publish(
        tmp_path / "one",
        [make_target(AVX2)],
        build=record("search", 1e-6, AVX2),
        profile={AVX2: TargetProfile(num_threads=4)},
    )
    two = publish(
        tmp_path / "two",
        [make_target(AVX512)],
        build=record("search", 2e-6, AVX512),
        profile={AVX512: TargetProfile(num_threads=8), AVX2: TargetProfile(num_threads=2)},
    )
    merged = merge(tmp_path / "out", one, two, labels={"run": "7"})
    build = json.loads((merged.path / "build.json").read_bytes())
    assert build["labels"] == {"run": "7", "team": "search"}
    assert build["warnings"] == ["cls assumed"]
    assert build["parity"] == {AVX2: {"pooled.max_abs": 1e-6}, AVX512: {"pooled.max_abs": 2e-6}}
    assert [entry["id"] for entry in build["from"]] == [one.artifact_id, two.artifact_id]
    assert build["from"][0]["host"] == {"cpu_model": "search"}
    facts = read_profile(merged.path).targets
    assert {name: facts[name].num_threads for name in facts} == {AVX2: 4, AVX512: 8}


def test_labels_that_differ_want_a_decision(tmp_path: Path) -> None:
    one = publish(tmp_path / "one", [make_target(AVX2)], build=record("search", 1e-6, AVX2))
    two = publish(tmp_path / "two", [make_target(AVX512)], build=record("ads", 1e-6, AVX512))
    with pytest.raises(RefusedError, match=r"labels\.team: 'search' in one .*, 'ads' in another"):
        merge(tmp_path / "out", one, two)
    merged = merge(tmp_path / "out", one, two, labels={"team": "both"})
    assert json.loads((merged.path / "build.json").read_bytes())["labels"] == {"team": "both"}


def test_an_existing_output_is_refused(
    avx2_only: Artifact, avx512_only: Artifact, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        merge(tmp_path / "out", avx2_only, avx512_only)


def test_the_command_prints_what_it_made(
    avx2_only: Artifact, avx512_only: Artifact, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = cli("merge", avx2_only.path, avx512_only.path, "--out", out, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["id"] == open_artifact(out).artifact_id
    assert document["targets"] == [AVX512, AVX2]
    refused = cli("merge", avx2_only.path, "--out", tmp_path / "none")
    assert refused.returncode == 2
    assert refused.stderr == "error: expected two artifacts or more, found 1\n"
    damaged = avx512_only.path / "targets" / AVX512 / "model.so"
    damaged.write_bytes(damaged.read_bytes()[::-1])
    done = cli("merge", avx2_only.path, avx512_only.path, "--out", tmp_path / "none")
    assert done.returncode == 3
    assert "expected sha256" in done.stderr


def test_a_merge_needs_no_torch(avx2_only: Artifact, avx512_only: Artifact, tmp_path: Path) -> None:
    arguments = ["merge", *map(str, (avx2_only.path, avx512_only.path, "--out", tmp_path / "o"))]
    script = (
        "import sys\nfrom infinity_v3.compiler.cli import main\n"
        f"sys.argv = ['infinity-compile', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "print(sorted({'torch', 'transformers', 'safetensors'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
