"""Runs a kept program of float32 as it is, without compiling it: the reference of later targets.

Knows nothing of checkpoints and engines.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.export import ExportedProgram

from infinity_v3.compiler.backends.aoti import constant_tensors
from infinity_v3.compiler.export import TOKEN_OUTPUTS, ExportedModel
from infinity_v3.compiler.operators import ATTENTION
from infinity_v3.compiler.packed import CU_SEQLENS, KEY_COUNTS, READOUTS, ROWS
from infinity_v3.compiler.parity import OPTION_LOGITS, Outputs
from infinity_v3.compiler.probes import Probes
from infinity_v3.compiler.progress import Progress

REFERENCE_NAME = f"kept program float32, torch {torch.__version__} eager"
_WINDOW = "window"


class EagerProgram:
    """A kept program, one text at a time; the kernels are their plain references in torch."""

    def __init__(self, model: ExportedModel, position_offset: int) -> None:
        self._program = model.program
        self._inputs = tuple(spec.name for spec in model.graph.inputs)
        self._outputs = tuple(spec.name for spec in model.graph.outputs)
        self._offset = position_offset

    def run(
        self,
        ids: NDArray[np.int64],
        types: NDArray[np.int64] | None,
        key_count: int | None,
        readouts: NDArray[np.int64] | None = None,
    ) -> Outputs:
        """Outputs of one text by name: vectors (D,), token outputs (S, D), what is read (K, 1).

        All float32. A second text of one token lies behind it, and is read where any is: graphs
        take two of each or more.
        """
        named = _packed(ids, types, key_count, self._offset)
        num_read = 0 if readouts is None else len(readouts)
        if readouts is not None:
            named[READOUTS] = torch.from_numpy(np.append(readouts, len(ids)))
        with torch.no_grad():
            found = _call(self._program, [named[name] for name in self._inputs])
        return {
            name: _own(name, tensor, len(ids), num_read).float().numpy()
            for name, tensor in zip(self._outputs, found, strict=True)
        }


def run_probes(
    model: ExportedModel, probes: Probes, offset: int, progress: Progress
) -> list[Outputs]:
    """Outputs of the first `probes.referenced` inputs."""
    program = EagerProgram(model, offset)
    outputs = []
    with progress.stage("reference outputs", probes.referenced) as stage:
        for position in range(probes.referenced):
            outputs.append(
                program.run(
                    probes.ids[position],
                    probes.types[position],
                    probes.key_counts[position],
                    probes.readouts[position] if probes.readouts else None,
                )
            )
            stage.advance()
    return outputs


def attention_windows(program: ExportedProgram) -> tuple[int, ...]:
    """Bounds of sight of the attention operators, ascending; probes are made around them."""
    operator = getattr(torch.ops.infinity, ATTENTION).default
    place = [argument.name for argument in operator._schema.arguments].index(_WINDOW)
    found = {node.args[place] for node in program.graph.nodes if node.target is operator}
    return tuple(sorted(window for window in found if isinstance(window, int) and window > 0))


def _own(name: str, tensor: Tensor, length: int, num_read: int) -> Tensor:
    """What an output holds of the first text."""
    if name == OPTION_LOGITS:
        return tensor[:num_read]
    return tensor[:length] if name in TOKEN_OUTPUTS else tensor[0]


def _packed(
    ids: NDArray[np.int64], types: NDArray[np.int64] | None, key_count: int | None, offset: int
) -> dict[str, Tensor]:
    length = len(ids)
    tokens = torch.from_numpy(np.append(ids, ids[:1]))
    positions = torch.cat([torch.arange(length), torch.arange(1)]) + offset
    second = np.zeros_like(ids) if types is None else types
    return {
        "input_ids": tokens,
        "position_ids": positions,
        "token_type_ids": torch.from_numpy(np.append(second, second[:1])),
        CU_SEQLENS: torch.tensor([0, length, length + 1], dtype=torch.int32),
        ROWS: torch.arange(length + 1),
        KEY_COUNTS: torch.tensor([key_count or length, 1], dtype=torch.int32),
    }


def _call(program: ExportedProgram, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Call the graph with what it takes by name and the inputs, in its order."""
    tensors = constant_tensors(program)
    given = iter(inputs)
    arguments = [
        next(given) if spec.target is None else tensors[spec.target]
        for spec in program.graph_signature.input_specs
    ]
    outputs: tuple[Tensor, ...] = program.graph_module(*arguments)
    return outputs
