"""The exported graph: its signature, its dynamic sizes, and the gate on its attention."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import PoolingMode, Precision
from infinity_v3.compiler.export import LIMITS, TORCH_DTYPES, ExportedModel, export_packed
from infinity_v3.compiler.heads import PoolingHead
from infinity_v3.compiler.operators import ATTENTION, POOL
from infinity_v3.compiler.packed import PackedModel, install_packed_attention
from infinity_v3.compiler.reference import ModelClass, ModelSource, load_model
from tiny_checkpoints import make_tiny_checkpoint

NUM_LAYERS = 2
NAMES = ("pooled", "pooled_cls", "hidden")
TYPED = ("input_ids", "position_ids", "token_type_ids", "cu_seqlens")
UNTYPED = ("input_ids", "position_ids", "cu_seqlens")
FOLDED = (*UNTYPED, "rows")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint("bert", tmp_path_factory.mktemp("bert") / "checkpoint")


@pytest.fixture(scope="module")
def distilbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("distilbert") / "checkpoint"
    return make_tiny_checkpoint("distilbert", path, max_positions=24)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint("llama", tmp_path_factory.mktemp("llama") / "checkpoint")


FLOATS = [Precision.FLOAT32, Precision.BFLOAT16]
"""8-bit layers stand in the same graph; test_int8.py is about them."""


@pytest.fixture(scope="module", params=FLOATS, ids=lambda precision: precision.value)
def exported(request: pytest.FixtureRequest, bert: Path) -> ExportedModel:
    return export(packed(bert, precision=request.param), precision=request.param)


def packed(
    checkpoint: Path,
    *,
    precision: Precision = Precision.FLOAT32,
    input_names: tuple[str, ...] = TYPED,
) -> PackedModel:
    install_packed_attention()
    encoder = load_model(
        ModelSource(path=checkpoint),
        ModelClass.ENCODER,
        dtype=TORCH_DTYPES[precision],
        is_packed=True,
    )
    head = PoolingHead([(PoolingMode.MEAN,), (PoolingMode.CLS,)], [])
    return PackedModel(encoder, head, input_names).eval()


def export(
    model: PackedModel,
    *,
    precision: Precision = Precision.FLOAT32,
    num_layers: int = NUM_LAYERS,
    num_positions: int = 512,
) -> ExportedModel:
    return export_packed(
        model,
        precision=precision,
        output_names=NAMES,
        num_layers=num_layers,
        num_positions=num_positions,
    )


def make_inputs(lengths: list[int], input_names: tuple[str, ...] = TYPED) -> tuple[Tensor, ...]:
    """In call order; where the graph folds, texts of the same first tokens share the first half."""
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(5, 100, (sum(lengths),), generator=generator)
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    tensors = {
        "input_ids": ids,
        "position_ids": torch.cat([torch.arange(length) for length in lengths]),
        "token_type_ids": torch.zeros_like(ids),
        "cu_seqlens": bounds,
        "key_counts": bounds.diff(),
        "rows": torch.arange(len(ids)),
    }
    return tuple(tensors[name] for name in input_names)


def test_the_signature_is_the_packed_contract(exported: ExportedModel) -> None:
    graph = exported.graph
    assert [(spec.name, spec.dtype, spec.dims) for spec in graph.inputs] == [
        ("input_ids", "int64", ("T",)),
        ("position_ids", "int64", ("T",)),
        ("token_type_ids", "int64", ("T",)),
        ("cu_seqlens", "int32", ("B+1",)),
    ]
    assert [(spec.name, spec.dtype, spec.dims) for spec in graph.outputs] == [
        ("pooled", "float32", ("B", 32)),
        ("pooled_cls", "float32", ("B", 32)),
        ("hidden", exported.precision.value, ("T", 32)),
    ]
    assert exported.limits == LIMITS


def test_our_operators_stand_in_the_graph_as_often_as_they_should(exported: ExportedModel) -> None:
    targets = [str(node.target) for node in exported.program.graph.nodes]
    assert sum(f"infinity.{ATTENTION}" in target for target in targets) == NUM_LAYERS
    assert sum(f"infinity.{POOL}" in target for target in targets) == 2


@pytest.mark.parametrize(
    "lengths", [[1, 1], [2, 1], [512, 1], [128] * 8, [1] * 100, [7, 300, 2, 64, 65]]
)
def test_sizes_are_free(exported: ExportedModel, bert: Path, lengths: list[int]) -> None:
    model = packed(bert, precision=exported.precision)
    inputs = make_inputs(lengths)
    with torch.inference_mode():
        expected = model(*inputs)
        found = exported.program.module()(*inputs)
    assert [tuple(x.shape) for x in found] == [(len(lengths), 32)] * 2 + [(sum(lengths), 32)]
    atol = 1e-5 if exported.precision is Precision.FLOAT32 else 0.1
    for x, y in zip(found, expected, strict=True):
        difference = (x.float() - y.float()).abs()
        assert difference.max() <= atol, f"max {difference.max():.3g} mean {difference.mean():.3g}"


def test_an_encoder_without_token_types_and_with_few_positions(distilbert: Path) -> None:
    model = packed(distilbert, input_names=UNTYPED)
    found = export(model, num_positions=24)
    assert tuple(spec.name for spec in found.graph.inputs) == UNTYPED
    inputs = make_inputs([24, 1, 24, 3], UNTYPED)
    with torch.inference_mode():
        difference = found.program.module()(*inputs)[-1] - model(*inputs)[-1]
    assert difference.abs().max() <= 1e-5


def test_a_graph_that_folds_has_stored_and_packed_tokens(llama: Path) -> None:
    model = packed(llama, input_names=FOLDED)
    found = export(model)
    assert [(spec.name, spec.dtype, spec.dims) for spec in found.graph.inputs] == [
        ("input_ids", "int64", ("N",)),
        ("position_ids", "int64", ("N",)),
        ("cu_seqlens", "int32", ("B+1",)),
        ("rows", "int64", ("T",)),
    ]
    assert [spec.dims[0] for spec in found.graph.outputs] == ["B", "B", "T"]
    inputs = make_inputs([9, 1, 30], FOLDED)
    with torch.inference_mode():
        whole = found.program.module()(*inputs)
    assert [len(output) for output in whole] == [3, 3, 40]


@pytest.mark.parametrize("shared", [1, 6, 7])
def test_tokens_that_are_stored_once_give_the_same_vectors(llama: Path, shared: int) -> None:
    # Two texts of seven tokens, the first `shared` of them equal.
    program = export(packed(llama, input_names=FOLDED)).program.module()
    ids, positions, bounds, rows = make_inputs([7, 7], FOLDED)
    ids[7 : 7 + shared] = ids[:shared]
    kept = torch.cat([torch.arange(7), torch.arange(7 + shared, 14)])
    rows_shared = torch.cat([torch.arange(7), torch.arange(shared), torch.arange(7, 14 - shared)])
    with torch.inference_mode():
        expected = program(ids, positions, bounds, rows)
        found = program(ids[kept], positions[kept], bounds, rows_shared)
    for x, y in zip(found, expected, strict=True):
        assert x.shape == y.shape
        assert (x - y).abs().max() <= 1e-5


def test_key_counts_have_one_number_per_text(bert: Path) -> None:
    names = (*TYPED, "key_counts")
    found = export(packed(bert, input_names=names)).graph.inputs
    assert [(spec.name, spec.dtype, spec.dims) for spec in found][-1] == (
        "key_counts",
        "int32",
        ("B",),
    )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_attention_that_was_not_packed_is_refused(bert: Path, attention: str) -> None:
    model = packed(bert)
    config: Any = model.encoder.config
    config._attn_implementation = attention
    with pytest.raises(RefusedError) as refusal:
        export(model)
    message = str(refusal.value)
    assert "holds 0 packed attention operators, expected one for each of the 2 layers" in message
    assert refusal.value.exit_code == 3


def test_one_layer_that_was_not_packed_is_refused(bert: Path) -> None:
    model = packed(bert)
    layer: Any = model.encoder.get_submodule("encoder.layer.1.attention.self")
    layer.config = type(layer.config)(**layer.config.to_dict())
    layer.config._attn_implementation = "sdpa"
    with pytest.raises(RefusedError, match="holds 1 packed attention operators, expected"):
        export(model)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_another_number_of_layers_is_refused(bert: Path, num_layers: int) -> None:
    with pytest.raises(RefusedError, match=f"each of the {num_layers} layers"):
        export(packed(bert), num_layers=num_layers)
