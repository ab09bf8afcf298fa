"""MPNet in packed form: its relative position buckets as one bias per head and distance.

The transformers class computes its attention itself, with a bias of S x S per head; here the same
layers run on our operator. Checked against the transformers class. Knows nothing of targets.
"""

from typing import Any, cast

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet.modeling_mpnet import (
    MPNetEncoder,
    MPNetLayer,
    MPNetModel,
    MPNetSelfAttention,
)


class PackedMPNetModel(MPNetModel):  # type: ignore[no-untyped-call]
    """An MPNetModel whose forward takes packed texts.

    Attributes:
        distance_bias: (H, 2 R + 1), see the attention operator.
    """

    distance_bias: Tensor

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cu_seq_lens_q: Tensor,
        **extras: Any,  # noqa: ANN401 - what every family is called with
    ) -> BaseModelOutput:
        """(1, T), (1, T) int64, positions from pad + 1 on, (B + 1,) int32 -> hidden (1, T, D)."""
        hidden = self.embeddings(input_ids=input_ids, position_ids=position_ids)[0]
        bias = self.distance_bias.float()
        for layer in self.encoder.layer:
            hidden = _run_layer(cast("MPNetLayer", layer), hidden, bias, cu_seq_lens_q)
        return BaseModelOutput(last_hidden_state=hidden[None])


def pack_mpnet(model: MPNetModel) -> None:
    """Turn a loaded model into its packed form, in place."""
    bias = _bias_table(model.encoder, int(model.config.max_position_embeddings))
    model.register_buffer("distance_bias", bias, persistent=False)
    model.__class__ = PackedMPNetModel


def _bias_table(encoder: MPNetEncoder, reach: int) -> Tensor:
    distances = torch.arange(-reach, reach + 1)
    buckets = encoder.relative_position_bucket(distances)  # type: ignore[no-untyped-call]
    table: Tensor = encoder.relative_attention_bias(buckets).detach()
    return table.transpose(0, 1).contiguous()


def _run_layer(layer: MPNetLayer, hidden: Tensor, bias: Tensor, cu_seqlens: Tensor) -> Tensor:
    attention = layer.attention
    attended = attention.LayerNorm(_attend(attention.attn, hidden, bias, cu_seqlens) + hidden)
    output: Tensor = layer.output(layer.intermediate(attended), attended)
    return output


def _attend(
    attention: MPNetSelfAttention, hidden: Tensor, bias: Tensor, cu_seqlens: Tensor
) -> Tensor:
    heads = (attention.num_attention_heads, attention.attention_head_size)
    query, key, value = (
        project(hidden).unflatten(1, heads) for project in (attention.q, attention.k, attention.v)
    )
    scale = attention.attention_head_size**-0.5
    mixed = torch.ops.infinity.varlen_attention(
        query, key, value, cu_seqlens, bias, None, None, False, -1, scale, 0.0
    )
    output: Tensor = attention.o(mixed.flatten(1))
    return output
