"""How far two implementations are apart, token by token.

llama.cpp looks its GELU up in a table of 16-bit floats. Given the same table, two correct
implementations agree to rounding wherever the last bits of an activation's input fall into the same
entry. Where they do not, the activation jumps by one part in a thousand, and the token with it.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from llama_oracle import LlamaOracle

EXACT = 2e-5
"""For the tokens without a jump, of which there are three in four and more."""
JUMP = 1e-3
"""For every token."""


def distances_to_llama(
    model: nn.Module, oracle: LlamaOracle, texts: Sequence[Tensor]
) -> NDArray[np.float32]:
    """Largest difference in each token's normalised vector; one number for each token."""

    def encode(ids: Tensor) -> NDArray[np.float32]:
        with torch.inference_mode():
            return np.asarray(model(input_ids=ids[None]).last_hidden_state[0])

    return _distances(encode, lambda ids: oracle.hidden(ids.tolist()), texts)


def _distances(
    left: Callable[[Tensor], NDArray[np.float32]],
    right: Callable[[Tensor], NDArray[np.float32]],
    texts: Sequence[Tensor],
) -> NDArray[np.float32]:
    rows = [np.abs(_normalised(left(ids)) - _normalised(right(ids))).max(-1) for ids in texts]
    return np.concatenate(rows)


def _normalised(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths: NDArray[np.float32] = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / lengths
