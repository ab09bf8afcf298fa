"""Turns a packed model into an exported program with a dynamic number of tokens and sequences.

Knows nothing of targets. Refuses a graph in which our attention does not stand once per layer: a
family outside the attention interface would otherwise compute all texts as one long sequence,
without an error.
"""

from dataclasses import dataclass

import torch
from torch.export import Dim, ExportedProgram

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import Graph, Limits, Precision, TensorSpec
from infinity_v3.compiler.operators import ATTENTION
from infinity_v3.compiler.packed import PackedModel, PackedModelWithTypes

LIMITS = Limits(max_tokens=32768, max_sequences=4096)
TORCH_DTYPES = {Precision.FLOAT32: torch.float32, Precision.BFLOAT16: torch.bfloat16}
_MIN_TOKENS = 2
_MIN_BOUNDS = 3
"""Smaller sizes are specialised away by the exporter; the runtime fills smaller batches up."""
_EXAMPLE_LENGTHS = (128,) * 8
"""About a thousand tokens: the matrix library takes the example as a layout hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """An exported graph of one precision, with its signature in call order."""

    program: ExportedProgram
    graph: Graph
    precision: Precision
    limits: Limits


def export_packed(
    model: PackedModel,
    *,
    precision: Precision,
    output_names: tuple[str, ...],
    num_layers: int,
    num_positions: int,
) -> ExportedModel:
    """Export with dynamic T and B.

    Args:
        model: encoder and head in the precision to export.
        output_names: names of the outputs, in order; the last is the token output.
        num_layers: how many attention layers the encoder has.
        num_positions: size of the position table, so that the example stays inside it.

    Raises:
        RefusedError: attention layers are missing from the graph.
    """
    example = _example(isinstance(model, PackedModelWithTypes), num_positions)
    tokens = Dim("T", min=_MIN_TOKENS, max=LIMITS.max_tokens)
    bounds = Dim("B1", min=_MIN_BOUNDS, max=LIMITS.max_sequences + 1)
    shapes = {name: {0: bounds if name == "cu_seqlens" else tokens} for name in example}
    with torch.no_grad():
        program = torch.export.export(
            model,
            (),
            kwargs=example,
            dynamic_shapes=shapes,
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        _refuse_missing_attention(program, num_layers)
        outputs = model(**example)
    return ExportedModel(
        program=program,
        graph=_graph(example, output_names, outputs),
        precision=precision,
        limits=LIMITS,
    )


def _example(has_types: bool, num_positions: int) -> dict[str, torch.Tensor]:
    lengths = [min(length, num_positions) for length in _EXAMPLE_LENGTHS]
    positions = torch.cat([torch.arange(length) for length in lengths])
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    inputs = {"input_ids": torch.ones_like(positions), "position_ids": positions}
    if has_types:
        inputs["token_type_ids"] = torch.zeros_like(positions)
    return {**inputs, "cu_seqlens": bounds}


def _refuse_missing_attention(program: ExportedProgram, num_layers: int) -> None:
    nodes = [node for node in program.graph.nodes if f"infinity.{ATTENTION}" in str(node.target)]
    if len(nodes) != num_layers:
        raise RefusedError(
            f"the exported graph holds {len(nodes)} packed attention operators, expected one for "
            f"each of the {num_layers} layers; this model's attention does not go through "
            "transformers' attention interface"
        )


def _graph(
    example: dict[str, torch.Tensor],
    output_names: tuple[str, ...],
    outputs: tuple[torch.Tensor, ...],
) -> Graph:
    inputs = tuple(
        TensorSpec(
            name=name, dtype=_dtype_name(tensor), dims=("B+1" if name == "cu_seqlens" else "T",)
        )
        for name, tensor in example.items()
    )
    specs = tuple(
        TensorSpec(
            name=name,
            dtype=_dtype_name(tensor),
            dims=("T" if name == "hidden" else "B", int(tensor.shape[1])),
        )
        for name, tensor in zip(output_names, outputs, strict=True)
    )
    return Graph(inputs=inputs, outputs=specs)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
