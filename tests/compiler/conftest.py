"""A small artifact that was never compiled: whole for the store, with nothing to run in it."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.manifest import (
    Backend,
    Device,
    Graph,
    Heads,
    Kind,
    LengthRule,
    Manifest,
    ModelFacts,
    Parity,
    ParityBounds,
    Pooling,
    PoolingMode,
    Precision,
    Prompts,
    Provenance,
    Requirements,
    Source,
    SourceFile,
    Target,
    TensorSpec,
    Tokenizer,
)
from infinity_v3.artifacts.manifest import Limits as TargetLimits
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.writer import ArtifactWriter, describe_files

TARGET = "cpu-x86_64-avx2-f32"
BUILD = {
    "built_at": "2025-01-02T03:04:05+00:00",
    "host": {"cpu_model": "Test CPU"},
    "labels": {"team": "search"},
    "warnings": ["cls assumed"],
    "parity": {TARGET: {"pooled.max_abs": 1.25e-6}},
}


@pytest.fixture(scope="session")
def sample_artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A published artifact whose engine is four bytes of text."""
    with ArtifactWriter(tmp_path_factory.mktemp("sample") / "artifact") as writer:
        _fill(writer.stage)
        return writer.commit(_manifest(writer.stage), profile={}, build=BUILD)


def _fill(stage: Path) -> None:
    (stage / "tokenizer").mkdir()
    (stage / "tokenizer" / "tokenizer.json").write_text("{}")
    (stage / "targets" / TARGET).mkdir(parents=True)
    (stage / "targets" / TARGET / "model.so").write_bytes(b"none")


def _manifest(stage: Path) -> Manifest:
    files = describe_files(stage)
    digest = "0" * 64
    return Manifest(
        name="sample",
        kind=Kind.EMBEDDING,
        model=ModelFacts(
            family="bert",
            architecture="BertModel",
            hidden_size=32,
            vocab_size=100,
            num_parameters=12345,
            max_input_tokens=64,
            position_offset=0,
            causal=False,
            modalities=("text",),
        ),
        heads=Heads(
            pooling=Pooling(modes=(PoolingMode.MEAN,), alternatives=(PoolingMode.CLS,)),
            dimensions=32,
            normalize=True,
            similarity="cosine",
        ),
        prompts=Prompts(),
        tokenizer=Tokenizer(
            file="tokenizer/tokenizer.json",
            length=LengthRule(max_tokens=64, source="sentence_bert_config.json"),
            special_tokens="template",
            truncation_side="right",
        ),
        graph=Graph(
            inputs=(
                TensorSpec(name="input_ids", dtype="int64", dims=("T",)),
                TensorSpec(name="position_ids", dtype="int64", dims=("T",)),
                TensorSpec(name="cu_seqlens", dtype="int32", dims=("B+1",)),
            ),
            outputs=(TensorSpec(name="pooled", dtype="float32", dims=("B", 32)),),
        ),
        targets=(
            Target(
                name=TARGET,
                backend=Backend.AOTI,
                device=Device.CPU,
                precision=Precision.FLOAT32,
                requires=Requirements(arch="x86_64", isa=("avx2",), torch="2.13", kernel_abi="1"),
                limits=TargetLimits(max_tokens=64, max_sequences=4),
                entry=f"targets/{TARGET}/model.so",
                files=tuple(file for file in files if file.path.startswith("targets/")),
                weights=None,
                parity=Parity(
                    reference="eager",
                    probes_digest=digest,
                    probe_count=9,
                    bounds=ParityBounds(max_abs=2e-5),
                    passed=True,
                ),
            ),
        ),
        files=files,
        source=Source(
            repository="local",
            revision=None,
            files=(SourceFile(path="config.json", sha256=digest),),
            license="mit",
        ),
        provenance=Provenance(
            infinity_v3="3.0.0",
            torch="2.13.0",
            transformers="5.24.0",
            compiler="g++ 12",
            tensorrt=None,
            kernel_abi="1",
            flags=(),
        ),
    )
