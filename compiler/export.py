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
from infinity_v3.compiler.operators import ATTENTION, DISENTANGLED
from infinity_v3.compiler.packed import CU_SEQLENS, KEY_COUNTS, READOUTS, ROWS, PackedModel
from infinity_v3.compiler.parity import OPTION_LOGITS

LIMITS = Limits(max_tokens=32768, max_sequences=4096)
TORCH_DTYPES = {
    Precision.FLOAT32: torch.float32,
    Precision.BFLOAT16: torch.bfloat16,
    Precision.INT8: torch.bfloat16,
}
"""Of everything but the products that are of 8-bit numbers."""
STORED, PACKED, SEQUENCES, BOUNDS, READ = "N", "T", "B", "B+1", "M"
"""Symbols of dynamic dimensions in a manifest's graph."""
TOKEN_OUTPUTS = frozenset({"hidden", "token_logits", "token_vectors"})
"""Outputs with a row for each packed token."""
READ_OUTPUTS = frozenset({OPTION_LOGITS})
"""Outputs with a row for each token that is read; all others have one for each text."""
_MIN_TOKENS = 2
_MIN_SEQUENCES = 2
_MIN_READ = 2
"""Smaller sizes are specialised away by the exporter; the runtime fills smaller batches up."""
_EXAMPLE_LENGTH = 128
_EXAMPLE_TEXTS = 8
_EXAMPLE_READ_EACH = 7
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
    """Export with dynamic numbers of stored tokens, packed tokens and sequences.

    Args:
        model: encoder and head in the precision to export.
        output_names: names of the outputs, in order.
        num_layers: how many attention layers the encoder has.
        num_positions: size of the position table, so that the example stays inside it.

    Raises:
        RefusedError: attention layers are missing from the graph.
    """
    example = _example(model.input_names, num_positions)
    dims = _dims(model.input_names)
    sizes = {
        STORED: Dim("N", min=_MIN_TOKENS, max=LIMITS.max_tokens),
        PACKED: Dim("T", min=_MIN_TOKENS, max=LIMITS.max_tokens),
        SEQUENCES: Dim("B", min=_MIN_SEQUENCES, max=LIMITS.max_sequences),
        READ: Dim("M", min=_MIN_READ, max=LIMITS.max_tokens),
        BOUNDS: Dim("B1", min=_MIN_SEQUENCES + 1, max=LIMITS.max_sequences + 1),
    }
    with torch.no_grad():
        program = torch.export.export(
            model,
            tuple(example.values()),
            dynamic_shapes=(tuple({0: sizes[dims[name]]} for name in example),),
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        _refuse_missing_attention(program, num_layers)
        outputs = model(*example.values())
    return ExportedModel(
        program=program,
        graph=_graph(example, dims, output_names, outputs),
        precision=precision,
        limits=LIMITS,
    )


def _dims(input_names: tuple[str, ...]) -> dict[str, str]:
    """Symbol of each input's only dimension."""
    tokens = STORED if ROWS in input_names else PACKED
    known = {CU_SEQLENS: BOUNDS, ROWS: PACKED, KEY_COUNTS: SEQUENCES, READOUTS: READ}
    return {name: known.get(name, tokens) for name in input_names}


def _example(input_names: tuple[str, ...], num_positions: int) -> dict[str, torch.Tensor]:
    """Texts of the same length; where the graph folds, the second one shares its first tokens."""
    length = min(_EXAMPLE_LENGTH, num_positions)
    lengths = [length] * _EXAMPLE_TEXTS
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    positions = torch.cat([torch.arange(length) for length in lengths])
    rows = torch.arange(len(positions))
    if ROWS in input_names:
        shared = length // 2
        rows[length : length + shared] = rows[:shared]
        rows[length + shared :] -= shared
        positions = torch.cat([positions[:length], positions[length + shared :]])
    tensors = {
        "input_ids": torch.ones_like(positions),
        "position_ids": positions,
        "token_type_ids": torch.zeros_like(positions),
        CU_SEQLENS: bounds,
        ROWS: rows,
        KEY_COUNTS: bounds.diff(),
        READOUTS: torch.arange(0, len(positions), _EXAMPLE_READ_EACH),
    }
    return {name: tensors[name] for name in input_names}


def _refuse_missing_attention(program: ExportedProgram, num_layers: int) -> None:
    names = [f"infinity.{name}." for name in (ATTENTION, DISENTANGLED)]
    nodes = [node for node in program.graph.nodes if any(n in f"{node.target}." for n in names)]
    if len(nodes) != num_layers:
        raise RefusedError(
            f"the exported graph holds {len(nodes)} packed attention operators, expected one for "
            f"each of the {num_layers} layers; this model's attention does not go through "
            "transformers' attention interface"
        )


def _graph(
    example: dict[str, torch.Tensor],
    dims: dict[str, str],
    output_names: tuple[str, ...],
    outputs: tuple[torch.Tensor, ...],
) -> Graph:
    inputs = tuple(
        TensorSpec(name=name, dtype=_dtype_name(tensor), dims=(dims[name],))
        for name, tensor in example.items()
    )
    specs = tuple(
        TensorSpec(
            name=name,
            dtype=_dtype_name(tensor),
            dims=(_rows_of(name), int(tensor.shape[1])),
        )
        for name, tensor in zip(output_names, outputs, strict=True)
    )
    return Graph(inputs=inputs, outputs=specs)


def _rows_of(output: str) -> str:
    if output in TOKEN_OUTPUTS:
        return PACKED
    return READ if output in READ_OUTPUTS else SEQUENCES


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
