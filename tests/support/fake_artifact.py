"""A valid artifact without a model: every file is a few bytes, every rule of the format is met.

The engines in it cannot be loaded.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from infinity_v3.artifacts.codec import encode_manifest
from infinity_v3.artifacts.manifest import (
    Backend,
    Device,
    FileEntry,
    Graph,
    Heads,
    Kind,
    LengthRule,
    Limits,
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
    SharedWeights,
    Source,
    SourceFile,
    Target,
    TensorSpec,
    Tokenizer,
)

AVX2_ISA = ("avx2", "fma")
AVX512_ISA = (*AVX2_ISA, "avx512f")
AVX512_BF16_ISA = (*AVX512_ISA, "avx512_bf16")
AMX_ISA = (*AVX512_BF16_ISA, "amx_bf16", "amx_tile")
TORCH_MINOR = "2.13"

_TOKENIZER_FILES = {"tokenizer/tokenizer.json": b'{"model":{}}'}
_WEIGHT_FILES = {"weights/float32.safetensors": b"shared weights"}


def make_target(name: str = "cpu-x86_64-avx2-f32", **overrides: object) -> Target:
    """Make a CPU target with an engine and a kernel library; `overrides` are fields of `Target`."""
    contents = _target_files(name)
    target = Target(
        name=name,
        backend=Backend.AOTI,
        device=Device.CPU,
        precision=Precision.FLOAT32,
        requires=Requirements(arch="x86_64", isa=AVX2_ISA, torch=TORCH_MINOR, kernel_abi="1"),
        limits=Limits(max_tokens=16384, max_sequences=256),
        entry=f"targets/{name}/model.so",
        files=tuple(_entry(path, data) for path, data in sorted(contents.items())),
        weights=None,
        parity=Parity(
            reference="transformers fp32 eager",
            probes_digest=hashlib.sha256(b"probes").hexdigest(),
            probe_count=3,
            bounds=ParityBounds(max_abs=2e-5, batch_max_abs=1e-5),
            passed=True,
        ),
    )
    return replace(target, **overrides)  # type: ignore[arg-type]  # fields by name


def make_manifest(**overrides: object) -> Manifest:
    """Make a valid manifest of two targets, one of them with shared weights.

    Args:
        **overrides: fields of `Manifest`. `weights` and `files` follow from `targets`.
    """
    targets = overrides.pop("targets", None) or (
        make_target("cpu-x86_64-avx2-f32", weights=Precision.FLOAT32),
        make_target(
            "cpu-x86_64-avx512-bf16",
            precision=Precision.BFLOAT16,
            requires=Requirements(arch="x86_64", isa=AVX512_BF16_ISA, torch=TORCH_MINOR),
        ),
    )
    assert isinstance(targets, tuple)
    is_shared = any(target.weights is not None for target in targets)
    manifest = Manifest(
        name="fake-encoder",
        kind=Kind.EMBEDDING,
        model=ModelFacts(
            family="bert",
            architecture="BertModel",
            hidden_size=8,
            vocab_size=100,
            num_parameters=1000,
            max_input_tokens=64,
            position_offset=0,
            causal=False,
            modalities=("text",),
        ),
        heads=Heads(
            pooling=Pooling(modes=(PoolingMode.MEAN,), alternatives=(PoolingMode.CLS,)),
            dimensions=8,
            normalize=True,
            similarity="cosine",
        ),
        prompts=Prompts(named={"query": "query: "}, default="query"),
        tokenizer=Tokenizer(
            file="tokenizer/tokenizer.json",
            length=LengthRule(max_tokens=64, source="sentence_bert_config.json"),
            special_tokens="template",
            truncation_side="right",
        ),
        graph=_graph(),
        weights=_shared_weights() if is_shared else (),
        targets=targets,
        files=_listed(targets, is_shared),
        source=Source(
            repository="local",
            revision=None,
            files=(SourceFile(path="config.json", sha256=hashlib.sha256(b"c").hexdigest()),),
            license="apache-2.0",
        ),
        provenance=Provenance(
            infinity_v3="3.0.0",
            torch="2.13.0+cpu",
            transformers="5.24.0",
            compiler="g++ 13.2.0",
            tensorrt=None,
            kernel_abi="1",
            flags=("-O3",),
        ),
    )
    return replace(manifest, **overrides)  # type: ignore[arg-type]  # fields by name


def write_fake_files(root: Path, manifest: Manifest) -> None:
    """Write every file that a manifest of this module lists."""
    contents = {**_TOKENIZER_FILES, **_WEIGHT_FILES}
    for target in manifest.targets:
        contents.update(_target_files(target.name))
    for entry in manifest.files:
        path = root / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[entry.path])


def write_fake_artifact(path: Path, manifest_overrides: Mapping[str, object] | None = None) -> Path:
    """Write an artifact directory that `open_artifact` accepts; returns `path`."""
    manifest = make_manifest(**(manifest_overrides or {}))
    path.mkdir(parents=True)
    write_fake_files(path, manifest)
    (path / "artifact.json").write_bytes(encode_manifest(manifest))
    for found in (path, *path.rglob("*")):
        found.chmod(found.stat().st_mode & 0o7755)
    return path


def _graph() -> Graph:
    return Graph(
        inputs=(
            TensorSpec(name="input_ids", dtype="int64", dims=("T",)),
            TensorSpec(name="cu_seqlens", dtype="int32", dims=("B+1",)),
        ),
        outputs=(TensorSpec(name="pooled_mean", dtype="float32", dims=("B", 8)),),
    )


def _shared_weights() -> tuple[SharedWeights, ...]:
    return (SharedWeights(precision=Precision.FLOAT32, path="weights/float32.safetensors"),)


def _target_files(name: str) -> dict[str, bytes]:
    return {
        f"targets/{name}/libinfinity-kernels-0123456789ab.so": b"kernels of " + name.encode(),
        f"targets/{name}/model.so": b"engine of " + name.encode(),
    }


def _entry(path: str, data: bytes) -> FileEntry:
    return FileEntry(path=path, num_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def _listed(targets: tuple[Target, ...], is_shared: bool) -> tuple[FileEntry, ...]:
    contents = {**_TOKENIZER_FILES, **(_WEIGHT_FILES if is_shared else {})}
    entries = [_entry(path, data) for path, data in contents.items()]
    entries.extend(entry for target in targets for entry in target.files)
    return tuple(sorted(entries, key=lambda entry: entry.path))
