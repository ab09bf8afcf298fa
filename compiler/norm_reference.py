"""What `infinity::layer_norm` and `infinity::embedding_norm` compute, in plain torch."""

from torch import Tensor
from torch.nn import functional


def layer_norm_reference(
    x: Tensor, other: Tensor | None, weight: Tensor, bias: Tensor | None, epsilon: float
) -> Tensor:
    """Normalise rows in float32, round once.

    Args:
        x: (N, D) float32 or bfloat16.
        other: the same, added before.
        weight, bias: (D,) float32 or bfloat16.
        epsilon: added to the variance.

    Returns:
        (N, D) of x's dtype.
    """
    rows = x.float() if other is None else x.float() + other.float()
    offset = None if bias is None else bias.float()
    normalised = functional.layer_norm(rows, rows.shape[-1:], weight.float(), offset, epsilon)
    return normalised.to(x.dtype)


def embedding_norm_reference(  # noqa: PLR0913 - the operator's schema
    table: Tensor,
    ids: Tensor,
    second_table: Tensor | None,
    second_ids: Tensor | None,
    third_table: Tensor | None,
    third_ids: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    epsilon: float,
) -> Tensor:
    """Add up rows of tables and normalise the sums in float32, round once.

    Args:
        table, second_table, third_table: (R, D) float32 or bfloat16, of one dtype.
        ids, second_ids, third_ids: (N,) int64, the row of each token.
        weight, bias, epsilon: see layer_norm_reference.

    Returns:
        (N, D) of the tables' dtype.
    """
    rows = functional.embedding(ids, table).float()
    for other, other_ids in ((second_table, second_ids), (third_table, third_ids)):
        if other is not None and other_ids is not None:
            rows = rows + functional.embedding(other_ids, other).float()
    return layer_norm_reference(rows, None, weight, bias, epsilon).to(table.dtype)
