"""A transformers encoder in packed form, its attention through our own operator.

The tokens of all texts lie end to end. Knows nothing of families or targets: the encoder is
whatever reference.py loads.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from infinity_v3.compiler.operators import ATTENTION, define_operators
from infinity_v3.compiler.packing import Packing
from infinity_v3.compiler.reference import PACKED_ATTENTION, register_attention

CU_SEQLENS = "cu_seqlens"
ROWS = "rows"
KEY_COUNTS = "key_counts"
READOUTS = "readout_positions"


def install_packed_attention() -> None:
    """Register our attention with transformers under PACKED_ATTENTION."""
    define_operators()
    register_attention(PACKED_ATTENTION, packed_attention)


def packed_attention(  # noqa: PLR0913 - transformers' signature, and what PackedModel adds to it
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    distance_bias: Tensor | None = None,
    packed_rows: Tensor | None = None,
    packed_key_counts: Tensor | None = None,
    **extras: Any,  # noqa: ANN401 - whatever a model passes
) -> tuple[Tensor, None]:
    """The attention function of transformers over one packed row.

    Args:
        module: the attention layer that calls.
        query, key, value: (1, H, N, D), keys and values possibly with fewer heads.
        sliding_window: an exclusive bound, as transformers passes it: |i - j| < sliding_window.
        softcap: bounds the scores, see Gemma 2 (2024), section 2.
        cu_seq_lens_q: (B + 1,) int32.
        distance_bias: (H, 2R + 1) float32, added to the scores by the distance j - i.
        packed_rows, packed_key_counts: see Packing.
        extras: ignored where they cannot change the numbers, refused where they would.

    Returns:
        (1, N, H, D) and None in place of attention weights.
    """
    _refuse_unsupported(module, attention_mask, cu_seq_lens_q, extras)
    causal = bool(getattr(module, "is_causal", False) if is_causal is None else is_causal)
    window = -1 if sliding_window is None else sliding_window - (0 if causal else 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    operator = getattr(torch.ops.infinity, ATTENTION)
    found = operator(
        q,
        k,
        v,
        cu_seq_lens_q,
        distance_bias,
        packed_rows,
        packed_key_counts,
        causal,
        window,
        float(scale),
        float(softcap or 0.0),
    )
    return found[None], None


def _refuse_unsupported(
    module: nn.Module,
    attention_mask: Tensor | None,
    cu_seq_lens_q: Tensor | None,
    extras: dict[str, Any],
) -> None:
    wanted = [name for name in ("s_aux", "position_bias") if extras.get(name) is not None]
    if attention_mask is not None:
        wanted.append("an attention mask")
    if cu_seq_lens_q is None:
        wanted.append("an unpacked input")
    if wanted:
        raise NotImplementedError(
            f"{type(module).__name__} needs {', '.join(wanted)} in packed attention"
        )


class PackedModel(nn.Module):
    """Encoder and head over packed inputs.

    Args:
        encoder: takes `input_names` but for the packing as (1, N) rows, gives last_hidden_state.
        head: (N, D) and the packing -> the outputs of the graph.
        input_names: what `forward` is called with, in order.
    """

    def __init__(self, encoder: nn.Module, head: nn.Module, input_names: Sequence[str]) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.input_names = tuple(input_names)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Run the packed texts; see docs/architecture.md for shapes and dtypes of the inputs."""
        named = dict(zip(self.input_names, tensors, strict=True))
        packing = Packing(
            cu_seqlens=named.pop(CU_SEQLENS),
            rows=named.pop(ROWS, None),
            key_counts=named.pop(KEY_COUNTS, None),
            readout_positions=named.pop(READOUTS, None),
        )
        output = self.encoder(
            **{name: tensor[None] for name, tensor in named.items()},
            cu_seq_lens_q=packing.cu_seqlens,
            cu_seq_lens_k=packing.cu_seqlens,
            packed_rows=packing.rows,
            packed_key_counts=packing.key_counts,
            return_dict=True,
        )
        outputs: tuple[Tensor, ...] = self.head(output.last_hidden_state[0], packing)
        return outputs
