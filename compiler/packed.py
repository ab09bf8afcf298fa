"""A transformers encoder in packed form, its attention through our own operator.

The tokens of all texts lie end to end. Knows nothing of families or targets: the encoder is
whatever reference.py loads.
"""

from typing import Any

import torch
from torch import Tensor, nn

from infinity_v3.compiler.heads import PoolingHead
from infinity_v3.compiler.operators import ATTENTION, define_operators
from infinity_v3.compiler.reference import register_attention

ATTENTION_NAME = "infinity_varlen"


def install_packed_attention() -> None:
    """Register our attention with transformers under ATTENTION_NAME."""
    define_operators()
    register_attention(ATTENTION_NAME, packed_attention)


def packed_attention(  # noqa: PLR0913 - transformers' signature
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    cu_seq_lens_q: Tensor | None = None,
    **extras: Any,  # noqa: ANN401 - whatever a model passes
) -> tuple[Tensor, None]:
    """The attention function of transformers over one packed row.

    Args:
        module: the attention layer that calls.
        query, key, value: (1, H, T, D), keys and values possibly with fewer heads.
        sliding_window: an exclusive bound, as transformers passes it: |i - j| < sliding_window.
        cu_seq_lens_q: (B + 1,) int32.
        extras: ignored where they cannot change the numbers, refused where they would.

    Returns:
        (1, T, H, D) and None in place of attention weights.
    """
    _refuse_unsupported(module, attention_mask, cu_seq_lens_q, extras)
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    window = -1 if sliding_window is None else sliding_window - (0 if causal else 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    operator = getattr(torch.ops.infinity, ATTENTION)
    return operator(q, k, v, cu_seq_lens_q, causal, window, float(scale))[None], None


def _refuse_unsupported(
    module: nn.Module,
    attention_mask: Tensor | None,
    cu_seq_lens_q: Tensor | None,
    extras: dict[str, Any],
) -> None:
    wanted = [
        name for name in ("softcap", "s_aux", "position_bias") if extras.get(name) is not None
    ]
    if attention_mask is not None:
        wanted.append("an attention mask")
    if cu_seq_lens_q is None:
        wanted.append("an unpacked input")
    if wanted:
        raise NotImplementedError(
            f"{type(module).__name__} needs {', '.join(wanted)} in packed attention"
        )


class PackedModel(nn.Module):
    """Encoder and head over packed inputs, with the argument list of the packed graph contract."""

    def __init__(self, encoder: nn.Module, head: PoolingHead) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def _encode(self, cu_seqlens: Tensor, **inputs: Tensor) -> tuple[Tensor, ...]:
        rows = {name: tensor[None] for name, tensor in inputs.items()}
        output = self.encoder(
            **rows, cu_seq_lens_q=cu_seqlens, cu_seq_lens_k=cu_seqlens, return_dict=True
        )
        hidden = output.last_hidden_state[0]
        return (*self.head(hidden, cu_seqlens), hidden)


class PackedModelWithTypes(PackedModel):
    """For encoders whose embeddings take token types."""

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, token_type_ids: Tensor, cu_seqlens: Tensor
    ) -> tuple[Tensor, ...]:
        """Run the packed texts.

        (T,), (T,), (T,) int64 and (B + 1,) int32 -> pooled (B, D) float32 per pooling, then hidden
        (T, D).
        """
        return self._encode(
            cu_seqlens,
            input_ids=input_ids,
            position_ids=position_ids,
            token_type_ids=token_type_ids,
        )


class PackedModelWithoutTypes(PackedModel):
    """For encoders without token types."""

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, cu_seqlens: Tensor
    ) -> tuple[Tensor, ...]:
        """Run the packed texts.

        (T,), (T,) int64 and (B + 1,) int32 -> pooled (B, D) float32 per pooling, then hidden
        (T, D).
        """
        return self._encode(cu_seqlens, input_ids=input_ids, position_ids=position_ids)
