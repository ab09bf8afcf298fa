"""From checkpoint to published artifact: what is decided, what is written, and when nothing is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compiled import COMPILE_TIMEOUT_S, CompiledArtifacts
from infinity_v3.artifacts.codec import decode_manifest
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, Pooling, PoolingMode
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.engines import input_names
from infinity_v3.compiler.pipeline import CompilePlan, plan_compile
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.request import CompileRequest
from tiny_artifacts import (
    FLOAT32_TARGET,
    HOST_TARGETS,
    SMALL,
    SMALL_SHARED,
    TinyArtifact,
    make_artifact,
)
from tiny_checkpoints import make_tiny_checkpoint, set_json_key

WRONG_REFERENCE = """
from infinity_v3.compiler import reference_outputs
import dataclasses

honest = reference_outputs.compute_reference
def wrong(*arguments):
    found = honest(*arguments)
    rows = tuple({name: array * 1.0 for name, array in row.items()} for row in found.outputs)
    rows[3]["pooled"][0] += 0.01
    return dataclasses.replace(found, outputs=rows)
reference_outputs.compute_reference = wrong
"""
UNPACKED_ATTENTION = """
from infinity_v3.compiler import packed, reference
reference.PACKED_ATTENTION = "sdpa"
"""
MAIN = "\nfrom infinity_v3.compiler.cli import main\nmain()\n"


@pytest.fixture(scope="module")
def opened(small: TinyArtifact) -> Artifact:
    return open_artifact(small.artifact)


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """The directory that artifacts are put into; nothing else is in it."""
    path = tmp_path / "shelf"
    path.mkdir()
    return path


def plan(checkpoint: Path, **options: object) -> CompilePlan:
    request = CompileRequest(
        checkpoint=str(checkpoint),
        out=checkpoint.parent / "never-written",
        **options,  # type: ignore[arg-type]  # fields by name
    )
    return plan_compile(request, SilentProgress())


def pooling_of(found: CompilePlan) -> Pooling | None:
    return found.task.heads.pooling


def run_with(sabotage: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The real program, in which one thing was broken first."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", sabotage + MAIN, *arguments],
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )


def the_error(done: subprocess.CompletedProcess[str]) -> str:
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


def test_a_failed_gate_publishes_nothing(small: TinyArtifact, shelf: Path) -> None:
    arguments = ("model", small.checkpoint, "--out", shelf / "artifact", "--target", FLOAT32_TARGET)
    done = run_with(WRONG_REFERENCE, *arguments)
    assert done.returncode == 3, done.stderr
    message = the_error(done)
    assert message.startswith("error: parity failed, the artifact must not be used: ")
    assert f"{FLOAT32_TARGET}: pooled: difference from the reference is" in message
    assert "on probe 3, allowed is 2e-05" in message
    assert list(shelf.iterdir()) == []


def test_attention_that_was_not_packed_publishes_nothing(small: TinyArtifact, shelf: Path) -> None:
    arguments = ("model", small.checkpoint, "--out", shelf / "artifact", "--target", FLOAT32_TARGET)
    done = run_with(UNPACKED_ATTENTION, *arguments)
    assert done.returncode == 3, done.stderr
    assert "holds 0 packed attention operators, expected one for each of the 1 layers" in the_error(
        done
    )
    assert list(shelf.iterdir()) == []


def test_the_manifest_says_what_was_compiled(small: TinyArtifact, opened: Artifact) -> None:
    manifest = opened.manifest
    assert manifest.name == small.checkpoint.name
    assert manifest.kind is Kind.EMBEDDING
    assert (manifest.model.family, manifest.model.max_input_tokens) == ("distilbert", 32)
    assert manifest.model.modalities == ("text",)
    assert [target.name for target in manifest.targets] == [FLOAT32_TARGET]
    (target,) = manifest.targets
    assert target.parity.passed
    assert target.parity.reference.startswith("transformers ")
    assert target.parity.probe_count > 10
    assert set(target.parity.probes_digest) != {"0"}
    assert [spec.name for spec in manifest.graph.outputs] == ["pooled", "hidden"]
    assert manifest.source.repository == "local"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        file.path for file in manifest.source.files
    }


def test_nothing_of_this_machine_stands_in_the_manifest(small: TinyArtifact) -> None:
    text = (small.artifact / "artifact.json").read_text()
    for trace in (str(small.checkpoint.parent), str(Path.home()), "/tmp", "site-packages"):
        assert trace not in text


def test_libraries_name_no_path_of_this_machine(small: TinyArtifact) -> None:
    for library in sorted(small.artifact.rglob("*.so")):
        content = library.read_bytes()
        for trace in (str(small.artifact.parent), str(Path.home()) + "/", "site-packages"):
            assert trace.encode() not in content, f"{library.name} holds {trace}"


def test_the_build_record_holds_times_and_figures(small: TinyArtifact) -> None:
    record = json.loads((small.artifact / "build.json").read_bytes())
    assert record["parity"][FLOAT32_TARGET]["pooled.max_abs"] <= 2e-5
    text = json.dumps(record)
    for stage in ("export float32", f"build {FLOAT32_TARGET}", f"verify {FLOAT32_TARGET}"):
        assert stage in text


def test_nothing_but_the_listed_files_is_in_an_artifact(
    compiled_artifact: CompiledArtifacts,
) -> None:
    for recipe in (SMALL, SMALL_SHARED):
        path = make_artifact(compiled_artifact, recipe).artifact
        manifest = decode_manifest((path / "artifact.json").read_bytes())
        listed = {entry.path for entry in manifest.files}
        found = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
        assert found == listed | {"artifact.json", "build.json", "profile.json"}
        assert all(not file.stat().st_mode & 0o022 for file in path.rglob("*"))


def test_a_plan_has_every_target_of_the_host(tmp_path: Path) -> None:
    found = plan(make_tiny_checkpoint("roberta", tmp_path / "roberta", pooling=("cls", "max")))
    assert [target.name for target in found.targets] == [target.name for target in HOST_TARGETS]
    assert (found.limit.rule.max_tokens, found.limit.position_offset) == (512, 2)
    assert found.kind is Kind.EMBEDDING
    assert found.task.outputs == ("pooled", "hidden")
    assert pooling_of(found) == Pooling(modes=(PoolingMode.CLS, PoolingMode.MAX))
    assert found.task.heads.dimensions == 64
    assert (found.is_causal, found.has_token_types) == (False, False)
    assert found.warnings == ()


def test_a_plan_follows_the_request(tmp_path: Path) -> None:
    found = plan(
        make_tiny_checkpoint("bert", tmp_path / "bert", pooling=None, max_seq_length=600),
        targets=(FLOAT32_TARGET,),
        pooling=(PoolingMode.CLS, PoolingMode.MAX, PoolingMode.MEAN),
        max_sequence_length=100,
    )
    assert [target.name for target in found.targets] == [FLOAT32_TARGET]
    assert pooling_of(found) == Pooling(
        modes=(PoolingMode.CLS,), alternatives=(PoolingMode.MAX, PoolingMode.MEAN)
    )
    assert found.task.outputs == ("pooled", "pooled_max", "pooled_mean", "hidden")
    assert found.has_token_types
    assert found.limit.rule.max_tokens == 100


def test_a_causal_plan_folds(tmp_path: Path) -> None:
    checkpoint = make_tiny_checkpoint("llama", tmp_path / "llama", pooling=("last-token",))
    found = plan(checkpoint)
    assert found.is_causal
    assert input_names(found) == ("input_ids", "position_ids", "cu_seqlens", "rows")


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
def test_a_head_with_more_rows_than_labels_is_refused(tmp_path: Path, head: str) -> None:
    checkpoint = make_tiny_checkpoint(
        "bert", tmp_path / "bert", head=head, num_labels=3, pooling=None
    )
    assert plan(checkpoint).task.heads.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    names = {"0": "a", "1": "b"}
    set_json_key(checkpoint / "config.json", "id2label", names)
    with pytest.raises(UsageError, match=r"id2label: expected 3 labels, .* found 2"):
        plan(checkpoint)


def test_what_was_assumed_is_a_warning(tmp_path: Path) -> None:
    found = plan(make_tiny_checkpoint("bert", tmp_path / "bert", pooling=None))
    assert any("no pooling is stored" in warning for warning in found.warnings)


def test_tokens_beyond_the_models_table_are_a_warning(tmp_path: Path) -> None:
    checkpoint = make_tiny_checkpoint("bert", tmp_path / "bert")
    size = json.loads((checkpoint / "config.json").read_bytes())["vocab_size"]
    file = checkpoint / "tokenizer.json"
    model = json.loads(file.read_bytes())["model"]
    model["vocab"]["far"] = 99_999
    set_json_key(file, "model", model)
    (warning,) = plan(checkpoint).warnings
    assert "tokenizer.json: its token ids go up to 99999" in warning
    assert f"config.json's vocab_size {size} ends at {size - 1}" in warning


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_sequence_length": 2}, "--max-sequence-length: expected 3 to 512"),
        ({"max_sequence_length": 513}, "--max-sequence-length: expected 3 to 512"),
        ({"targets": ("cpu-x86_64-avx512-f64",)}, "unknown target 'cpu-x86_64-avx512-f64'"),
        ({"revision": "main"}, "--revision main: belongs to a hub id"),
        ({"task": Kind.CLASSIFIER}, "can't be compiled as classifier, which needs a sequence"),
        ({"task": Kind.RERANKER}, "can't be compiled as reranker, which needs a sequence"),
        ({"pooling": (PoolingMode.SPLADE,)}, "can't be compiled as sparse, which needs a masked"),
    ],
)
def test_a_plan_refuses_what_cannot_be_compiled(
    tmp_path: Path, options: dict[str, object], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        plan(make_tiny_checkpoint("bert", tmp_path / "bert"), **options)
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]
