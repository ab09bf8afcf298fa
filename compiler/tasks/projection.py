"""What makes narrow vectors of an encoder's token vectors: dense modules, or one stored matrix."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.checkpoint_files import find_files
from infinity_v3.compiler.heads import load_dense
from infinity_v3.compiler.loaded_weights import refuse_not_finite, refuse_whole_numbers
from infinity_v3.compiler.safetensors_header import read_tensor_headers
from infinity_v3.model_specs.late_interaction import LateInteractionHead

_MATRIX = "linear.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMatrix:
    """Stanford's projection: a matrix (D', D) among the weights of the encoder."""

    file: Path
    dtype: str
    out_features: int

    def load(self) -> nn.Module:
        """Read it as a layer in float32.

        Raises:
            UsageError: it is not floating-point and finite.
        """
        refuse_whole_numbers(self.file, {_MATRIX: self.dtype})
        with safe_open(self.file, framework="pt") as stored:
            weight: torch.Tensor = stored.get_tensor(_MATRIX)
        refuse_not_finite(self.file, [(_MATRIX, weight)])
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        linear.load_state_dict({"weight": weight.float()})
        return linear.eval().requires_grad_(False)


def find_matrix(folder: Path, hidden_size: int, dimensions: int | None) -> StoredMatrix:
    """Find Stanford's projection.

    Args:
        folder: the checkpoint.
        hidden_size: width of the encoder's vectors.
        dimensions: width that the metadata states.

    Raises:
        UsageError: it is absent, or has another shape.
    """
    for name in find_files(folder).weights:
        for header in read_tensor_headers(folder / name):
            if header.name == _MATRIX:
                wanted = (dimensions or header.shape[0], hidden_size)
                if header.shape != wanted:
                    raise UsageError(
                        f"{folder / name}: {_MATRIX}: expected the shape {wanted}, found "
                        f"{header.shape}; weights, config.json and artifact.metadata must come "
                        "from one checkpoint"
                    )
                return StoredMatrix(
                    file=folder / name, dtype=header.dtype, out_features=header.shape[0]
                )
    raise UsageError(
        f"{folder}: expected the projection {_MATRIX} of a ColBERT model among its weights, found "
        "none; use a complete checkpoint"
    )


def load_projection(head: LateInteractionHead, matrix: StoredMatrix | None) -> nn.Module:
    """The chain over token vectors in float32; an empty one leaves them as they are."""
    layers = [load_dense(layer) for layer in head.dense]
    return nn.Sequential(*layers) if matrix is None else matrix.load()
