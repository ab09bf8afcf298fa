"""DeBERTa-v2 and v3 in packed form: disentangled attention through our operator.

What the relative positions contribute depends on the weights alone, so it is computed once, when a
model is packed. Checked against the transformers class. Knows nothing of targets.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    ConvLayer,
    DebertaV2Layer,
    DebertaV2Model,
    DisentangledSelfAttention,
    make_log_bucket_position,
)


class PackedDebertaV2Model(DebertaV2Model):  # type: ignore[no-untyped-call]
    """A DebertaV2Model whose forward takes packed texts."""

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cu_seq_lens_q: Tensor,
        token_type_ids: Tensor | None = None,
        **extras: Any,  # noqa: ANN401 - what every family is called with
    ) -> BaseModelOutput:
        """(1, T), (1, T) int64, (B + 1,) int32 -> hidden (1, T, D)."""
        embedded = self.embeddings(
            input_ids=input_ids, position_ids=position_ids, token_type_ids=token_type_ids
        )[0]
        hidden = embedded
        for number, layer in enumerate(self.encoder.layer):
            hidden = _run_layer(cast("DebertaV2Layer", layer), hidden, cu_seq_lens_q)
            if number == 0 and self.encoder.conv is not None:
                hidden = _convolve(self.encoder.conv, embedded, hidden, cu_seq_lens_q)
        return BaseModelOutput(last_hidden_state=hidden[None])


def pack_deberta(model: DebertaV2Model) -> None:
    """Turn a loaded model into its packed form, in place."""
    rows = model.encoder.get_rel_embedding()  # type: ignore[no-untyped-call]
    reach = int(model.config.max_position_embeddings)
    for layer in model.encoder.layer:
        _project_positions(cast("DebertaV2Layer", layer).attention.self, rows, reach)
    model.__class__ = PackedDebertaV2Model


def _project_positions(
    attention: DisentangledSelfAttention, rows: Tensor | None, reach: int
) -> None:
    """Give a layer its `pos_key` and `pos_query` (P, H, D) or None, and `delta` (2 R + 1,)."""
    projections: dict[str, nn.Module | None] = {"pos_key": None, "pos_query": None}
    if rows is not None and "c2p" in attention.pos_att_type:
        shared = attention.share_att_key
        projections["pos_key"] = attention.key_proj if shared else attention.pos_key_proj
    if rows is not None and "p2c" in attention.pos_att_type:
        shared = attention.share_att_key
        projections["pos_query"] = attention.query_proj if shared else attention.pos_query_proj
    for name, project in projections.items():
        table = None if project is None or rows is None else _heads(attention, project(rows))
        attention.register_buffer(name, None if table is None else table.detach(), persistent=False)
    if rows is not None:
        attention.register_buffer("delta", _delta(attention, reach), persistent=False)


def _delta(attention: DisentangledSelfAttention, reach: int) -> Tensor:
    """Row of `pos_key` and `pos_query` for each distance i - j; beyond its reach it is constant."""
    buckets, longest = attention.position_buckets, attention.max_relative_positions
    reach = max(reach, longest)
    distances = torch.arange(-reach, reach + 1)
    if buckets > 0 and longest > 0:
        distances = make_log_bucket_position(distances, buckets, longest).to(torch.long)
    span = attention.pos_ebd_size
    return torch.clamp(distances + span, 0, 2 * span - 1).to(torch.int32)


def _heads(attention: DisentangledSelfAttention, projected: Tensor) -> Tensor:
    return projected.reshape(projected.shape[0], attention.num_attention_heads, -1)


def _run_layer(layer: DebertaV2Layer, hidden: Tensor, cu_seqlens: Tensor) -> Tensor:
    mixed = _attend(layer.attention.self, hidden, cu_seqlens)
    attended = layer.attention.output(mixed, hidden)
    output: Tensor = layer.output(layer.intermediate(attended), attended)
    return output


def _attend(attention: DisentangledSelfAttention, hidden: Tensor, cu_seqlens: Tensor) -> Tensor:
    query, key, value = (
        _heads(attention, project(hidden))
        for project in (attention.query_proj, attention.key_proj, attention.value_proj)
    )
    # The published scale counts the terms that are configured.
    terms = 1 + sum(name in attention.pos_att_type for name in ("c2p", "p2c"))
    scale = (query.shape[-1] * terms) ** -0.5
    buffers = dict(attention.named_buffers(recurse=False))
    pos_key, pos_query = buffers.get("pos_key"), buffers.get("pos_query")
    if pos_key is None and pos_query is None:
        mixed: Tensor = torch.ops.infinity.varlen_attention(
            query, key, value, cu_seqlens, None, None, None, False, -1, scale, 0.0
        )
    else:
        mixed = torch.ops.infinity.disentangled_attention(
            query, key, value, pos_key, pos_query, attention.delta, cu_seqlens, scale
        )
    return mixed.flatten(1)


def _convolve(layer: ConvLayer, embedded: Tensor, hidden: Tensor, cu_seqlens: Tensor) -> Tensor:
    """The convolution over the embeddings of one text, which sees zeros beyond its ends."""
    convolution = layer.conv
    width = convolution.kernel_size[0]
    taps = [_shifted(embedded, tap - width // 2, cu_seqlens) for tap in range(width)]
    seen = torch.stack(taps, dim=-1).chunk(convolution.groups, dim=1)
    weights = convolution.weight.chunk(convolution.groups, dim=0)
    parts = [x.flatten(1) @ w.flatten(1).T for x, w in zip(seen, weights, strict=True)]
    convolved = torch.cat(parts, dim=1)
    if convolution.bias is not None:
        convolved = convolved + convolution.bias
    output: Tensor = layer.LayerNorm(hidden + ACT2FN[layer.conv_act](convolved))
    return output


def _shifted(embedded: Tensor, offset: int, cu_seqlens: Tensor) -> Tensor:
    """Row t holds row t + offset of the same text, or zeros; (T, D)."""
    place = torch.arange(embedded.shape[0], device=embedded.device)
    text = torch.bucketize(place, cu_seqlens, right=True)
    there = (place + offset).clamp(0, embedded.shape[0] - 1)
    inside = (there == place + offset) & (text[there] == text)
    return embedded[there] * inside[:, None]
