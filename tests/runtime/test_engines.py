"""The CPU engine: what it refuses, what it owns, and how it loads its files."""

import ctypes
import json
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine_calls import OpenedEngine, open_engine, opened_engine
from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.manifest import Backend, Device, Limits, Precision
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.runtime.batch import NO_READOUTS, Batch
from infinity_v3.runtime.engine import EngineError, EngineLoadError, EngineSettings, load_engine
from infinity_v3.runtime.engines.batch_checks import check_bounds
from infinity_v3.runtime.engines.kernel_library import load_kernel_library
from infinity_v3.runtime.engines.libtorch import LibTorch
from infinity_v3.runtime.engines.shared_weights import SharedWeights
from tampering import copy_artifact, replace_file
from tiny_artifacts import TinyArtifact

WEIGHTS = "weights/float32.safetensors"
BERT_INPUTS = frozenset({"input_ids", "position_ids", "token_type_ids", "cu_seqlens"})


@pytest.fixture(scope="module")
def opened(small: TinyArtifact) -> Iterator[OpenedEngine]:
    with opened_engine(small.artifact) as engine:
        yield engine


def make_batch(
    ids: list[int],
    cu_seqlens: list[int],
    *,
    positions: list[int] | None = None,
    types: list[int] | None = None,
    rows: list[int] | None = None,
    key_counts: list[int] | None = None,
) -> Batch:
    """A batch as no packing would make it."""
    return Batch(
        input_ids=np.array(ids, dtype=np.int64),
        position_ids=np.array(positions or [0] * len(ids), dtype=np.int64),
        token_type_ids=np.array(types or [0] * len(ids), dtype=np.int64),
        cu_seqlens=np.array(cu_seqlens, dtype=np.int32),
        rows=np.array(rows if rows is not None else range(cu_seqlens[-1]), dtype=np.int64),
        key_counts=np.array(key_counts or np.diff(cu_seqlens), dtype=np.int32),
        readout_positions=NO_READOUTS,
        readout_bounds=np.zeros(len(cu_seqlens), dtype=np.int64),
    )


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (make_batch([5, -1], [0, 2]), "a token id lies outside 0.."),
        (make_batch([5, 10_000_000], [0, 2]), "a token id lies outside 0.."),
        (make_batch([5, 6], [0, 2], positions=[0, 32]), "a position lies outside 0..31"),
        (make_batch([5, 6], [0, 2], positions=[-1, 0]), "a position lies outside 0..31"),
        (make_batch([5, 6], [0, 2], types=[0, 2]), "a token type lies outside 0..1"),
        (make_batch([5, 6], [0, 1, 1, 2]), "a sequence is empty"),
        (make_batch([5, 6], [0, 2, 1, 2]), "a sequence is empty"),
        (make_batch([5, 6], [0, 3]), "its arrays differ in length"),
        (make_batch([5, 6], [1, 2]), "its arrays differ in length"),
        (make_batch([5, 6], [0, 2], positions=[0]), "its arrays differ in length"),
        (make_batch([5, 6], [0, 2], types=[0, 0, 0]), "its arrays differ in length"),
        (make_batch([], [0]), "a sequence is empty"),
    ],
)
def test_a_batch_out_of_bounds_is_refused_before_native_code(
    opened: OpenedEngine, batch: Batch, reason: str
) -> None:
    before = opened.run([[5, 6, 7]])["pooled"]
    with pytest.raises(EngineError, match=reason):
        opened.engine.run(batch, opened.output_names)
    assert np.array_equal(opened.run([[5, 6, 7]])["pooled"], before), "the engine is unusable"


def test_the_last_id_and_the_last_position_are_taken(opened: OpenedEngine) -> None:
    last = opened.artifact.manifest.model.vocab_size - 1
    assert np.isfinite(opened.run([[last] * 32])["pooled"]).all()


def test_more_than_the_engine_takes_is_refused(opened: OpenedEngine) -> None:
    limits = opened.engine.limits
    with pytest.raises(EngineError, match=f"the engine takes {limits.max_sequences}"):
        opened.run([[5]] * (limits.max_sequences + 1))
    with pytest.raises(EngineError, match=f"the engine takes {limits.max_tokens}"):
        opened.run([[5] * 32] * (limits.max_tokens // 32 + 1))


def test_limits_are_those_of_target_and_model(opened: OpenedEngine) -> None:
    facts = replace(opened.artifact.manifest.model, position_offset=2)
    batch = make_batch([5, 6], [0, 2], positions=[2, 33])
    limits = Limits(max_tokens=2, max_sequences=1)
    check_bounds(batch, facts, limits, BERT_INPUTS)
    for smaller in (Limits(max_tokens=1, max_sequences=1), Limits(max_tokens=2, max_sequences=0)):
        with pytest.raises(EngineError, match="the engine takes"):
            check_bounds(batch, facts, smaller, BERT_INPUTS)
    with pytest.raises(EngineError, match=r"outside 0..33"):
        check_bounds(make_batch([5], [0, 1], positions=[34]), facts, limits, BERT_INPUTS)


@pytest.mark.parametrize("lengths", [[1], [2], [1, 1], [7], [1] * 50, [32], [1, 32]])
def test_the_smallest_batches_have_the_shapes_they_ask_for(
    opened: OpenedEngine, lengths: list[int]
) -> None:
    texts = [[5 + position] * length for position, length in enumerate(lengths)]
    outputs = opened.run(texts)
    width = opened.artifact.manifest.model.hidden_size
    assert outputs["pooled"].shape == (len(lengths), width)
    assert outputs["hidden"].shape == (sum(lengths), width)
    # Filled up or not: the same numbers as among others.
    among = opened.run([*texts, [9, 8, 7]])
    assert np.abs(among["pooled"][:-1] - outputs["pooled"]).max() <= 1e-5
    assert np.abs(among["hidden"][:-3] - outputs["hidden"]).max() <= 1e-5


def test_the_team_of_a_call_can_be_chosen(small: TinyArtifact) -> None:
    openmp = ctypes.CDLL("libgomp.so.1")
    batch = make_batch([5, 6, 7], [0, 2, 3], positions=[0, 1, 0])
    with opened_engine(small.artifact, num_threads=2) as opened:
        found = {}
        for num_threads, size in ((1, 1), (None, 2), (2, 2)):
            output = opened.engine.run(batch, frozenset({"pooled"}), num_threads=num_threads)
            assert openmp.omp_get_max_threads() == size
            found[num_threads] = output.tensors["pooled"]
    for vectors in found.values():
        np.testing.assert_allclose(vectors, found[1], rtol=0, atol=1e-6)


def test_only_what_was_asked_for_is_copied_out(opened: OpenedEngine) -> None:
    batch = make_batch([5, 6, 7], [0, 2, 3], positions=[0, 1, 0])
    assert set(opened.engine.run(batch, frozenset({"pooled"})).tensors) == {"pooled"}
    assert set(opened.engine.run(batch, frozenset({"hidden"})).tensors) == {"hidden"}
    assert opened.engine.run(batch, frozenset()).tensors == {}


def test_every_output_is_float32_and_contiguous(bert: TinyArtifact) -> None:
    manifest = open_artifact(bert.artifact).manifest
    assert {spec.dtype for spec in manifest.graph.outputs} == {"float32"}
    for target in manifest.targets:
        with opened_engine(bert.artifact, target.name) as engine:
            outputs = engine.run([[5, 6, 7], [8]])
        assert set(outputs) == {spec.name for spec in manifest.graph.outputs}
        for name, array in outputs.items():
            assert array.dtype == np.float32, (target.name, name)
            assert array.flags.c_contiguous, (target.name, name)


def test_two_engines_of_one_file_do_not_share_state(small: TinyArtifact) -> None:
    with opened_engine(small.artifact) as left:
        expected = left.run([[5, 6, 7]])["pooled"]
        with opened_engine(small.artifact) as right:
            assert np.array_equal(right.run([[5, 6, 7]])["pooled"], expected)
        assert np.array_equal(left.run([[5, 6, 7]])["pooled"], expected)


def test_files_that_are_hashed_at_load_run_as_well(small: TinyArtifact) -> None:
    with opened_engine(small.artifact) as plain:
        expected = plain.run([[5, 6, 7]])["pooled"]
    before = len(list(Path("/proc/self/fd").iterdir()))
    hashed = open_engine(small.artifact, digests=DigestPolicy.ALWAYS)
    assert np.array_equal(hashed.run([[5, 6, 7]])["pooled"], expected)
    hashed.engine.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "descriptors stayed open"


@pytest.mark.parametrize("digests", list(DigestPolicy))
def test_another_artifact_in_the_place_of_a_closed_one_is_really_loaded(
    small: TinyArtifact, other: TinyArtifact, tmp_path: Path, digests: DigestPolicy
) -> None:
    # The dynamic loader knows libraries by path; paths and descriptor numbers come again.
    found: dict[str, list[NDArray[np.float32]]] = {}
    for tiny in (small, other, small):
        place = copy_artifact(tiny.artifact, tmp_path / "place")
        opened = open_engine(place, digests=digests)
        found.setdefault(tiny.recipe.key, []).append(opened.run([[5, 6, 7]])["pooled"])
        opened.engine.close()
        shutil.rmtree(place)
    first, second = found[small.recipe.key]
    assert np.array_equal(first, second)
    assert np.abs(found[other.recipe.key][0] - first).max() > 0.01


def test_a_model_file_that_is_no_library_is_refused(small: TinyArtifact, tmp_path: Path) -> None:
    copy = copy_artifact(small.artifact, tmp_path / "copy")
    entry = open_artifact(copy).manifest.targets[0].entry
    replace_file(copy, entry, b"not a library")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(EngineLoadError, match="the compiled model could not be loaded"):
        open_engine(copy, digests=DigestPolicy.ALWAYS)
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "descriptors stayed open"


def test_a_library_that_is_no_model_is_refused(small: TinyArtifact, tmp_path: Path) -> None:
    copy = copy_artifact(small.artifact, tmp_path / "copy")
    target = open_artifact(copy).manifest.targets[0]
    kernels = next(entry.path for entry in target.files if entry.path != target.entry)
    replace_file(copy, target.entry, (copy / kernels).read_bytes())
    with pytest.raises(EngineLoadError, match="undefined symbol: AOTInductorModelContainer"):
        open_engine(copy)


def test_a_kernel_library_that_does_not_load_is_refused(
    small: TinyArtifact, tmp_path: Path
) -> None:
    entry = open_artifact(small.artifact).manifest.targets[0].files[0]
    path = tmp_path / "libinfinity-kernels-0123456789ab.so"
    path.write_bytes(b"no library")
    with pytest.raises(EngineLoadError, match=r"libinfinity-kernels-0123456789ab.so could not be"):
        load_kernel_library(str(path), replace(entry, path=f"targets/x/{path.name}"))


def test_a_signature_that_differs_from_the_manifest_is_refused(small: TinyArtifact) -> None:
    artifact = open_artifact(small.artifact)
    graph = replace(artifact.manifest.graph, outputs=artifact.manifest.graph.outputs[:1])
    changed = replace(artifact, manifest=replace(artifact.manifest, graph=graph))
    with pytest.raises(EngineLoadError, match=r"expected \d inputs and 1 outputs, found \d and 2"):
        load_engine(changed, artifact.manifest.targets[0], EngineSettings(num_threads=1))


def test_a_shape_that_differs_from_the_manifest_is_an_error(small: TinyArtifact) -> None:
    artifact = open_artifact(small.artifact)
    outputs = tuple(
        replace(spec, dims=(spec.dims[0], 99)) for spec in artifact.manifest.graph.outputs
    )
    graph = replace(artifact.manifest.graph, outputs=outputs)
    changed = replace(artifact, manifest=replace(artifact.manifest, graph=graph))
    engine = load_engine(changed, artifact.manifest.targets[0], EngineSettings(num_threads=1))
    with pytest.raises(EngineError, match="expected a contiguous output of"):
        engine.run(make_batch([5, 6], [0, 2]), frozenset({"pooled"}))
    engine.close()


@pytest.mark.parametrize(
    ("backend", "device"), [(Backend.TENSORRT, Device.CUDA), (Backend.AOTI, Device.CUDA)]
)
def test_a_backend_of_another_release_is_refused(
    small: TinyArtifact, backend: Backend, device: Device
) -> None:
    artifact = open_artifact(small.artifact)
    target = replace(artifact.manifest.targets[0], backend=backend, device=device)
    with pytest.raises(EngineLoadError, match=f"backend {backend.value} on {device.value}"):
        load_engine(artifact, target, EngineSettings(num_threads=1))


def test_torch_that_is_not_where_it_should_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineLoadError, match="torch's CPU libraries could not be loaded"):
        LibTorch(tmp_path)


def test_shared_weights_give_the_numbers_of_embedded_ones(
    small: TinyArtifact, shared: TinyArtifact
) -> None:
    manifest = open_artifact(shared.artifact).manifest
    assert [(entry.precision, entry.path) for entry in manifest.weights] == [
        (Precision.FLOAT32, WEIGHTS)
    ]
    assert manifest.targets[0].weights is Precision.FLOAT32
    assert open_artifact(small.artifact).manifest.weights == ()
    texts = [[5, 6, 7], [8], list(range(5, 37))]
    with opened_engine(small.artifact) as embedded, opened_engine(shared.artifact) as mapped:
        for name, expected in embedded.run(texts).items():
            difference = np.abs(mapped.run(texts)[name] - expected)
            assert difference.max() <= 1e-6, f"{name}: {difference.max():.3g}"


def test_an_engine_with_shared_weights_holds_none_itself(
    small: TinyArtifact, shared: TinyArtifact
) -> None:
    sizes = {}
    for tiny in (small, shared):
        target = open_artifact(tiny.artifact).manifest.targets[0]
        sizes[tiny.recipe.key] = (tiny.artifact / target.entry).stat().st_size
    stored = (shared.artifact / WEIGHTS).stat().st_size
    saved = sizes[small.recipe.key] - sizes[shared.recipe.key]
    assert saved >= 0.8 * stored, f"{sizes}, weights {stored}"


def test_a_missing_constant_is_refused_by_name(shared: TinyArtifact, tmp_path: Path) -> None:
    copy = copy_artifact(shared.artifact, tmp_path / "copy")
    header, data = read_safetensors(copy / WEIGHTS)
    name = sorted(name for name in header if name.endswith("word_embeddings.weight"))[0]
    del header[name]
    replace_file(copy, WEIGHTS, safetensors_bytes(header, data))
    with pytest.raises(EngineLoadError, match=f"{WEIGHTS} lacks the weight {name}; compile"):
        open_engine(copy)


def read_safetensors(path: Path) -> tuple[dict[str, dict[str, object]], bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def safetensors_bytes(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (struct.pack("<Q", 1 << 40) + b"{}", "the header is longer than the file"),
        (
            safetensors_bytes({"a": tensor("F16", [2], 0, 4)}, bytes(4)),
            "a: dtype F16 is not one of",
        ),
        (safetensors_bytes({"a": tensor("F32", [2], 0, 4)}, bytes(8)), "a: its bytes do not fit"),
        (safetensors_bytes({"a": tensor("F32", [2], 0, 8)}, bytes(4)), "a: its bytes do not fit"),
        (safetensors_bytes({"a": tensor("BF16", [3], 2, 4)}, bytes(6)), "a: its bytes do not fit"),
    ],
)
def test_a_weight_file_that_lies_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "float32.safetensors"
    path.write_bytes(content)
    with pytest.raises(EngineLoadError, match=reason):
        SharedWeights(path)


def test_mapped_weights_are_the_bytes_of_the_file(tmp_path: Path) -> None:
    values: NDArray[np.float32] = np.arange(6, dtype=np.float32).reshape(2, 3)
    header = {"__metadata__": {"format": "pt"}, "a": tensor("F32", [2, 3], 4, 28)}
    path = tmp_path / "float32.safetensors"
    path.write_bytes(safetensors_bytes(header, bytes(4) + values.tobytes()))
    weights = SharedWeights(path)
    assert set(weights.tensors) == {"a"}
    mapped = weights.tensors["a"]
    assert (mapped.shape, mapped.dtype) == ((2, 3), "float32")
    assert ctypes.string_at(mapped.address, values.nbytes) == values.tobytes()


def test_an_artifact_may_lie_under_a_path_of_any_characters(
    shared: TinyArtifact, tmp_path: Path
) -> None:
    odd = Path(shutil.copytree(shared.artifact, tmp_path / "Modelle für 深度 %20"))
    with opened_engine(odd) as moved, opened_engine(shared.artifact) as original:
        assert np.array_equal(moved.run([[5, 6]])["pooled"], original.run([[5, 6]])["pooled"])
