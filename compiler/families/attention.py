"""The step from projected heads to mixed values, shared by the model classes of this folder.

Knows nothing of families.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


def attend(
    module: nn.Module,
    function: Callable[..., tuple[Tensor, Tensor | None]],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,  # noqa: ANN401 - whatever the implementation takes
) -> Tensor:
    """Mix values by an attention function of transformers' interface.

    Args:
        module: the attention layer that calls.
        query, key, value: (B, H, S, D).
        attention_mask: additive, broadcast to (B, H, S, S).

    Returns:
        (B, S, H * D).
    """
    scaling = query.shape[-1] ** -0.5
    mixed, _ = function(
        module, query, key, value, attention_mask, dropout=0.0, scaling=scaling, **options
    )
    return mixed.flatten(2)


def eager_attention(  # noqa: PLR0913 - transformers' signature
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **options: Any,  # noqa: ANN401 - transformers passes what it does not know on
) -> tuple[Tensor, Tensor]:
    """Softmax attention written out; (B, S, H, D) and the weights (B, H, S, S)."""
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.dropout(scores.softmax(-1), p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2), weights
