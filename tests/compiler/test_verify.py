"""Engines are judged in a process of their own, and whatever is wrong with them is one sentence."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from compiled import CompiledArtifacts, compile_checkpoint, infinity_compile
from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.manifest import Precision
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.parity import Outputs, ParityReport
from infinity_v3.compiler.probes import Probes
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.reference_outputs import ReferenceOutputs
from infinity_v3.compiler.reverify import probes_of, reference_of
from infinity_v3.compiler.verify import refuse_failed, verify_artifact, verify_target
from tampering import copy_artifact, replace_file
from tiny_artifacts import (
    BERT,
    CAMEMBERT,
    FLOAT32_TARGET,
    SMALL_SHARED,
    Recipe,
    TinyArtifact,
    make_artifact,
)
from tiny_checkpoints import make_tiny_checkpoint
from tiny_retrievers import (
    make_colbert_checkpoint,
    make_splade_checkpoint,
    make_yes_no_reranker_checkpoint,
)

ABORTING = "#include <cstdlib>\n__attribute__((constructor)) static void die() { std::abort(); }\n"


@pytest.fixture(scope="module")
def opened(small: TinyArtifact) -> Artifact:
    return open_artifact(small.artifact)


@pytest.fixture(scope="module")
def reference(small: TinyArtifact, opened: Artifact) -> ReferenceOutputs:
    return reference_of(opened, small.checkpoint, SilentProgress())


@pytest.fixture
def copy(small: TinyArtifact, tmp_path: Path) -> Path:
    return copy_artifact(small.artifact, tmp_path / "copy")


def engine_path(artifact: Path) -> str:
    return open_artifact(artifact).manifest.targets[0].entry


def verify(artifact: Artifact, probes: Probes, outputs: tuple[Outputs, ...]) -> ParityReport:
    target = artifact.manifest.targets[0]
    return verify_target(
        artifact.path, target, probes, outputs, reference_name="the test", threads=1
    )


def refused(*arguments: str | Path, code: int) -> str:
    """Run `infinity-compile verify` to its refusal; the one sentence it ends with."""
    done = infinity_compile("verify", *arguments)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    *before, last = done.stderr.splitlines()
    others = [line for line in before if not re.match(r"at +\d+\.\d s  ", line)]
    assert others == [], "more than progress and a line"
    assert last.startswith("error: ")
    return last.removeprefix("error: ")


@pytest.mark.parametrize("recipe", [BERT, CAMEMBERT, SMALL_SHARED], ids=lambda recipe: recipe.key)
def test_a_fresh_artifact_verifies(compiled_artifact: CompiledArtifacts, recipe: Recipe) -> None:
    tiny = make_artifact(compiled_artifact, recipe)
    arguments = (tiny.artifact, "--checkpoint", tiny.checkpoint, "--json")
    done = infinity_compile("verify", *arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    artifact = open_artifact(tiny.artifact)
    assert found["id"] == artifact.artifact_id
    recorded = json.loads((tiny.artifact / "build.json").read_bytes())["parity"]
    assert set(recorded) == set(recipe.targets)
    for report, target in zip(found["targets"], artifact.manifest.targets, strict=True):
        assert report["target"] == target.name
        assert report["failures"] == []
        # The same probes and, up to threads, the same figures as when it was compiled.
        assert report["probes_digest"] == target.parity.probes_digest
        assert report["probe_count"] == target.parity.probe_count
        assert report["figures"].keys() == recorded[target.name].keys()
        if target.precision is Precision.FLOAT32:
            assert report["figures"]["pooled.max_abs"] <= 2e-5
            assert report["figures"]["hidden.batch_max_abs"] <= 1e-5
        assert report["figures"]["pooled.min_cosine"] >= 0.999


@dataclass(frozen=True, kw_only=True)
class Case:
    """A checkpoint of another kind.

    Attributes:
        make: writes the checkpoint.
        options: of its compile.
        figures: what is reported of its output beside cosine and difference.
    """

    make: Callable[[Path], Path]
    options: tuple[str, ...] = ()
    output: str = "logits"
    figures: frozenset[str] = frozenset({"max_probability", "batch_max_probability"})


def classifier(path: Path) -> Path:
    return make_tiny_checkpoint(
        "bert",
        path,
        head="SequenceClassification",
        pooling=None,
        num_labels=3,
        num_layers=1,
        max_positions=64,
    )


CASES = {
    "classifier": Case(make=classifier),
    "sparse": Case(
        make=lambda path: make_splade_checkpoint("distilbert", path),
        output="sparse",
        figures=frozenset(),
    ),
    "late-interaction": Case(
        make=lambda path: make_colbert_checkpoint("distilbert", path),
        output="token_vectors",
        figures=frozenset(),
    ),
    "yes-no": Case(
        make=lambda path: make_yes_no_reranker_checkpoint("qwen3", path),
        options=("--task", "reranker", "--yes-token", "Ġquery", "--no-token", "yes"),
    ),
}


def compiled_case(compiled_artifact: CompiledArtifacts, name: str) -> tuple[Path, Path]:
    """Checkpoint and artifact."""
    case = CASES[name]
    checkpoint = compiled_artifact(f"verify-{name}.checkpoint", case.make)
    options = ("--target", FLOAT32_TARGET, *case.options)
    path = compiled_artifact(
        f"verify-{name}", lambda out: compile_checkpoint(checkpoint, out, *options)
    )
    return checkpoint, path


@pytest.mark.parametrize("name", CASES)
def test_every_kind_is_verified_as_it_was_compiled(
    compiled_artifact: CompiledArtifacts, name: str
) -> None:
    case = CASES[name]
    checkpoint, path = compiled_case(compiled_artifact, name)
    done = infinity_compile("verify", path, "--checkpoint", checkpoint, "--json")
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)["targets"]
    recorded = json.loads((path / "build.json").read_bytes())["parity"][FLOAT32_TARGET]
    assert report["figures"].keys() == recorded.keys()
    assert case.figures <= {key.removeprefix(f"{case.output}.") for key in recorded}
    (target,) = open_artifact(path).manifest.targets
    assert report["probes_digest"] == target.parity.probes_digest
    shown = infinity_compile("inspect", path)
    assert shown.returncode == 0, shown.stderr


def test_logits_are_held_to_the_reference(compiled_artifact: CompiledArtifacts) -> None:
    checkpoint, path = compiled_case(compiled_artifact, "classifier")
    artifact = open_artifact(path)
    reference = reference_of(artifact, checkpoint, SilentProgress())
    rows = [dict(row) for row in reference.outputs]
    rows[3]["logits"] = rows[3]["logits"][[1, 0, 2]]
    (failure,) = verify(artifact, reference.probes, tuple(rows)).failures
    assert failure.startswith("logits: difference from the reference is")
    assert failure.endswith("on probe 3, allowed is 5e-05")


@pytest.mark.parametrize("word", ["no", "Ġthe"])
def test_other_words_than_those_of_the_manifest_do_not_pass(
    compiled_artifact: CompiledArtifacts, word: str
) -> None:
    checkpoint, path = compiled_case(compiled_artifact, "yes-no")
    artifact = open_artifact(path)
    heads = replace(artifact.manifest.heads, opposite_label=word)
    other = replace(artifact, manifest=replace(artifact.manifest, heads=heads))
    reference = reference_of(other, checkpoint, SilentProgress())
    report = verify(artifact, reference.probes, reference.outputs)
    assert any("logits: difference from the reference" in text for text in report.failures)


def test_probes_without_a_checkpoint_have_what_the_graph_takes(
    compiled_artifact: CompiledArtifacts,
) -> None:
    names = ("classifier", "sparse", "late-interaction")
    opened = [open_artifact(compiled_case(compiled_artifact, name)[1]) for name in names]
    typed, plain, hiding = (probes_of(artifact).probes for artifact in opened)
    assert [set(map(type, probes.types)) == {type(None)} for probes in (typed, plain, hiding)] == [
        False,
        True,
        True,
    ]
    assert set(typed.key_counts) == set(plain.key_counts) == {None}
    assert set(hiding.key_counts) != {None}


def test_every_output_is_held_to_the_reference(compiled_artifact: CompiledArtifacts) -> None:
    tiny = make_artifact(compiled_artifact, BERT)
    names = {spec.name for spec in open_artifact(tiny.artifact).manifest.graph.outputs}
    assert len(names) == 7
    kinds = ("max_abs", "min_cosine", "batch_max_abs", "batch_min_cosine")
    for figures in json.loads((tiny.artifact / "build.json").read_bytes())["parity"].values():
        assert set(figures) == {f"{name}.{kind}" for name in names for kind in kinds}


def test_without_a_checkpoint_only_batching_is_compared(small: TinyArtifact) -> None:
    done = infinity_compile("verify", small.artifact, "--json")
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)["targets"]
    assert report["reference"] == "none: no checkpoint was given"
    assert {name.split(".")[1] for name in report["figures"]} == {
        "batch_max_abs",
        "batch_min_cosine",
    }


def test_another_checkpoint_is_refused(small: TinyArtifact, other: TinyArtifact) -> None:
    message = refused(small.artifact, "--checkpoint", other.checkpoint, code=3)
    assert "model.safetensors: expected the checkpoint that" in message
    assert message.endswith("give the original checkpoint")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "1_Pooling/config.json"])
def test_a_checkpoint_that_was_changed_since_is_refused(
    small: TinyArtifact, opened: Artifact, tmp_path: Path, name: str
) -> None:
    changed = Path(shutil.copytree(small.checkpoint, tmp_path / "checkpoint"))
    (changed / name).write_bytes((changed / name).read_bytes() + b"\n")
    with pytest.raises(RefusedError, match=f"{name}: expected the checkpoint that"):
        reference_of(opened, changed, SilentProgress())


def test_an_engine_of_other_weights_fails_parity(
    small: TinyArtifact, other: TinyArtifact, copy: Path
) -> None:
    replace_file(
        copy, engine_path(copy), (other.artifact / engine_path(other.artifact)).read_bytes()
    )
    message = refused(copy, "--checkpoint", small.checkpoint, code=3)
    assert f"{FLOAT32_TARGET}: pooled: difference from the reference is" in message
    assert f"{FLOAT32_TARGET}: hidden: difference from the reference is" in message
    assert "alone against batched" not in message
    # Nothing else could have told: it is a whole artifact of a working engine.
    assert infinity_compile("verify", copy).returncode == 0


def test_a_changed_byte_is_found_before_anything_runs(copy: Path) -> None:
    entry = engine_path(copy)
    with (copy / entry).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    message = refused(copy, code=3)
    assert entry in message
    assert "sha256" in message


def test_an_engine_that_crashes_is_one_sentence(copy: Path, tmp_path: Path) -> None:
    source, library = tmp_path / "die.cpp", tmp_path / "die.so"
    source.write_text(ABORTING)
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    replace_file(copy, engine_path(copy), library.read_bytes())
    message = refused(copy, code=1)
    assert message == (
        f"target {FLOAT32_TARGET} could not be verified: the engine crashed with signal 6; "
        "this is a bug of the compiled engine"
    )


def test_an_engine_that_does_not_load_is_one_sentence(copy: Path) -> None:
    replace_file(copy, engine_path(copy), b"no library")
    message = refused(copy, code=1)
    assert message.startswith(f"target {FLOAT32_TARGET} could not be verified: ")
    assert "the compiled model could not be loaded" in message


def test_an_artifact_for_other_hosts_is_refused(opened: Artifact) -> None:
    (target,) = opened.manifest.targets
    elsewhere = replace(target, requires=replace(target.requires, isa=("amx_of_tomorrow",)))
    changed = replace(opened, manifest=replace(opened.manifest, targets=(elsewhere,)))
    with pytest.raises(RefusedError, match="this host can run none of its targets"):
        verify_artifact(changed, None, SilentProgress())


def test_a_reference_that_says_otherwise_names_the_probe(
    opened: Artifact, reference: ReferenceOutputs
) -> None:
    assert verify(opened, reference.probes, reference.outputs).passed
    outputs = [dict(row) for row in reference.outputs]
    outputs[4]["pooled"] = outputs[4]["pooled"] + np.float32(0.01)
    outputs[2]["hidden"] = outputs[2]["hidden"] * np.float32(1.01)
    report = verify(opened, reference.probes, tuple(outputs))
    assert not report.passed
    hidden, pooled = report.failures
    assert hidden.startswith("hidden: difference from the reference is")
    assert "on probe 2, allowed is 5e-05" in hidden
    assert pooled.startswith("pooled: difference from the reference is")
    assert "on probe 4, allowed is 2e-05" in pooled
    with pytest.raises(RefusedError, match=f"{FLOAT32_TARGET}: pooled: .* on probe 4"):
        refuse_failed([report])


def test_a_probe_that_the_engine_refuses_is_one_sentence(opened: Artifact) -> None:
    probes = probes_of(opened).probes
    too_long = np.full(33, 7, dtype=np.int64)
    longer = replace(
        probes,
        ids=(*probes.ids, too_long),
        types=(*probes.types, None),
        key_counts=(*probes.key_counts, None),
        referenced=0,
    )
    with pytest.raises(RunFailedError, match=r"could not be verified: .*refused before the engine"):
        verify(opened, longer, ())


def test_the_verifying_process_leaves_nothing_behind(
    opened: Artifact, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert verify(opened, probes_of(opened).probes, ()).passed
    assert list(tmp_path.iterdir()) == []
