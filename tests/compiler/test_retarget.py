"""Targets added from an artifact's own program: the same engines, and refusals that say why."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from compiled import COMPILE_TIMEOUT_S, CompiledArtifacts, infinity_compile
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.manifest import KeptProgram, Precision
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.programs.check import check_retarget
from infinity_v3.compiler.programs.merge import joined_manifest
from tiny_artifacts import AVX2_TARGET, FLOAT32_TARGET, TinyArtifact

needs_two_targets = pytest.mark.skipif(
    FLOAT32_TARGET == AVX2_TARGET, reason="this host runs one target of float32: none can be added"
)
WRONG_PROGRAM = """
from infinity_v3.compiler.programs import eager, retarget
honest = eager.run_probes
def wrong(*arguments):
    outputs = honest(*arguments)
    outputs[3]["pooled"][0] += 0.01
    return outputs
retarget.run_probes = wrong
"""
MAIN = "\nfrom infinity_v3.compiler.cli import main\nmain()\n"


def digests(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def retarget(artifact: Path, out: Path, *targets: str) -> "subprocess.CompletedProcess[str]":
    words = [word for name in targets for word in ("--target", name)]
    return infinity_compile("retarget", artifact, *words, "--out", out)


@pytest.fixture(scope="module")
def extended(kept: TinyArtifact, compiled_artifact: CompiledArtifacts) -> Path:
    """The artifact with its program, and a target added from it."""

    def build(out: Path) -> None:
        before = digests(kept.artifact)
        done = retarget(kept.artifact, out, AVX2_TARGET)
        assert done.returncode == 0, done.stderr
        assert digests(kept.artifact) == before

    return compiled_artifact("tiny-small-extended", build)


@pytest.mark.slow
@needs_two_targets
def test_an_added_engine_is_the_one_that_a_compile_builds(
    kept: TinyArtifact, avx2: TinyArtifact, extended: Path
) -> None:
    before, after, fresh = map(digests, (kept.artifact, extended, avx2.artifact))
    added = {path for path in after if path.startswith(f"targets/{AVX2_TARGET}/")}
    assert len(added) == 2
    assert {path: after[path] for path in added} == {path: fresh[path] for path in added}
    records = {"artifact.json", "build.json", "profile.json"}
    assert after.keys() - added == before.keys()
    for path in before.keys() - records:
        assert after[path] == before[path], path


@pytest.mark.slow
@needs_two_targets
def test_the_manifest_says_what_was_added_and_how(kept: TinyArtifact, extended: Path) -> None:
    old, new = open_artifact(kept.artifact), open_artifact(extended)
    assert new.artifact_id != old.artifact_id
    first, second = new.manifest.targets
    assert (first,) == old.manifest.targets
    assert second.name == AVX2_TARGET
    assert second.weights is Precision.FLOAT32
    assert second.parity.passed
    assert second.parity.reference.startswith("kept program float32, torch ")
    assert second.parity.probe_count > 10
    assert new.manifest.weights == old.manifest.weights
    assert new.manifest.program == old.manifest.program
    assert [flag.partition(":")[0] for flag in new.manifest.provenance.flags] == [
        FLOAT32_TARGET,
        AVX2_TARGET,
    ]
    build = json.loads((extended / "build.json").read_bytes())
    assert [entry["id"] for entry in build["from"]] == [old.artifact_id]
    assert build["reference_check"].keys() == {FLOAT32_TARGET}
    assert build["parity"].keys() == {FLOAT32_TARGET, AVX2_TARGET, "program/float32"}


@pytest.mark.slow
@needs_two_targets
def test_a_merge_of_compiles_holds_the_same_engines(
    kept: TinyArtifact, avx2: TinyArtifact, extended: Path
) -> None:
    parts = [(tiny.artifact, open_artifact(tiny.artifact).manifest) for tiny in (avx2, kept)]
    merged, added = joined_manifest(parts), open_artifact(extended).manifest
    assert merged.files == added.files
    assert merged.provenance == added.provenance
    assert merged.weights == added.weights


@pytest.mark.slow
@needs_two_targets
def test_a_program_that_differs_from_its_engine_publishes_nothing(
    kept: TinyArtifact, tmp_path: Path
) -> None:
    arguments = ("retarget", kept.artifact, "--target", AVX2_TARGET, "--out", tmp_path / "out")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WRONG_PROGRAM + MAIN, *arguments],
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert f"{FLOAT32_TARGET}: pooled: difference from the reference is" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_without_a_program_is_refused(
    sample_artifact: Artifact, tmp_path: Path
) -> None:
    done = retarget(sample_artifact.path, tmp_path / "out", FLOAT32_TARGET)
    expected = 2 if FLOAT32_TARGET == AVX2_TARGET else 3
    assert done.returncode == expected, done.stderr
    if expected == 3:
        assert done.stderr.splitlines()[-1] == (
            f"error: sample keeps no program of float32, which {FLOAT32_TARGET} is built from; it "
            "keeps none: compile the checkpoint with --keep-program and a target of that precision"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_is_there_is_refused(sample_artifact: Artifact) -> None:
    manifest = sample_artifact.manifest
    with pytest.raises(UsageError, match=f"--target: {AVX2_TARGET} is in sample already"):
        check_retarget(manifest, (AVX2_TARGET,))
    with pytest.raises(UsageError, match="unknown target 'cpu-x86_64-avx2-f16'"):
        check_retarget(manifest, ("cpu-x86_64-avx2-f16",))


@needs_two_targets
def test_the_reference_must_be_kept(sample_artifact: Artifact) -> None:
    manifest = sample_artifact.manifest
    half = KeptProgram(precision=Precision.BFLOAT16, files=())
    with pytest.raises(RefusedError, match=r"keeps no program of float32, .* it keeps bfloat16"):
        check_retarget(replace(manifest, program=(half,)), (FLOAT32_TARGET,))
