"""How the texts of a packed batch lie, as encoder and heads see it inside the graph."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Bounds of the texts.

    Attributes:
        cu_seqlens: (B + 1,) int32 over T packed tokens.
        rows: (T,) int64, the stored token that each packed token is; None = every token is stored,
            in order.
        key_counts: (B,) int32, how many tokens of a text are seen by its tokens; None = all.
        readout_positions: (M,) int64, packed tokens that the head reads; None = none is named.
    """

    cu_seqlens: Tensor
    rows: Tensor | None = None
    key_counts: Tensor | None = None
    readout_positions: Tensor | None = None

    def unfolded(self, stored: Tensor) -> Tensor:
        """Rows of stored tokens (N, D) as rows of packed tokens (T, D)."""
        return stored if self.rows is None else stored[self.rows]
