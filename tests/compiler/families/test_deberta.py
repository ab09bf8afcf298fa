"""DeBERTa-v2 and v3 in packed form against the class of transformers."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from transformers import DebertaV2Config, DebertaV2Model
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

from infinity_v3.compiler.families import pack
from packed_calls import (
    LENGTHS,
    encode_alone,
    encode_packed,
    largest_difference,
    random_texts,
    spread_weights,
)

TOLERANCE = 1e-5
MAX_LENGTH = 160
BOTH = {"pos_att_type": ["c2p", "p2c"]}
V3 = {
    "pos_att_type": "p2c|c2p",
    "position_buckets": 16,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
V2_XLARGE = {**V3, "conv_kernel_size": 3, "conv_act": "gelu", "attention_head_size": 8}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "v3": V3,
    "v2-xlarge": V2_XLARGE,
    "own projections": {**BOTH, "share_att_key": False, "position_buckets": 16},
    "c2p alone": {"pos_att_type": ["c2p"], "share_att_key": True, "position_buckets": 16},
    "p2c alone": {"pos_att_type": ["p2c"], "share_att_key": False},
    "no buckets, short reach": {**BOTH, "share_att_key": True, "max_relative_positions": 20},
    "reach of the longest bucket": {**BOTH, "share_att_key": True, "position_buckets": 100},
    "neither term": {"pos_att_type": []},
    "no relative positions": {"relative_attention": False, **BOTH},
    "types and narrow embeddings": {**V3, "type_vocab_size": 2, "embedding_size": 16},
    "absolute positions too": {**V3, "position_biased_input": True},
    "convolution in groups": {**V3, "conv_kernel_size": 5, "conv_groups": 4},
}


def tiny_model(variant: Mapping[str, Any]) -> DebertaV2Model:
    sizes: dict[str, Any] = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "intermediate_size": 64}
    options: dict[str, Any] = {
        "max_position_embeddings": MAX_LENGTH,
        "relative_attention": True,
        **variant,
    }
    return spread_weights(DebertaV2Model(DebertaV2Config(**sizes, **options)))


def attentions(model: nn.Module) -> list[DisentangledSelfAttention]:
    return [module for module in model.modules() if isinstance(module, DisentangledSelfAttention)]


@pytest.mark.parametrize("name", VARIANTS)
def test_packed_texts_equal_each_text_alone(name: str) -> None:
    model = tiny_model(VARIANTS[name])
    texts = random_texts((*LENGTHS, MAX_LENGTH), vocab_size=64)
    alone = encode_alone(model, texts)

    pack(model)

    assert largest_difference(encode_packed(model, texts), alone) < TOLERANCE


@pytest.mark.parametrize("term", ["pos_key", "pos_query"])
def test_each_term_of_the_positions_counts(term: str) -> None:
    model = tiny_model(V3)
    texts = random_texts(LENGTHS, vocab_size=64)
    alone = encode_alone(model, texts)
    pack(model)

    for attention in attentions(model):
        setattr(attention, term, None)

    assert largest_difference(encode_packed(model, texts), alone) > 100 * TOLERANCE


def test_the_buckets_count() -> None:
    model = tiny_model(V3)
    texts = random_texts(LENGTHS, vocab_size=64)
    alone = encode_alone(model, texts)
    pack(model)

    for attention in attentions(model):
        delta = attention.get_buffer("delta")
        reach, span = len(delta) // 2, attention.pos_ebd_size
        plain = torch.arange(-reach, reach + 1) + span
        delta.copy_(plain.clamp(0, 2 * span - 1))

    assert largest_difference(encode_packed(model, texts), alone) > 100 * TOLERANCE


def test_the_convolution_stops_at_the_ends_of_a_text() -> None:
    model = tiny_model(V2_XLARGE)
    text, other = random_texts((9, 7), vocab_size=64)
    pack(model)

    alone = encode_packed(model, [text])
    between = encode_packed(model, [other, text, other])

    assert largest_difference([between[1]], alone) < TOLERANCE


def test_types_reach_the_embeddings() -> None:
    model = tiny_model(VARIANTS["types and narrow embeddings"])
    (text,) = random_texts((12,), vocab_size=64)
    types = torch.tensor([0] * 5 + [1] * 7)
    mask = torch.ones_like(text)[None]
    want = model(input_ids=text[None], attention_mask=mask, token_type_ids=types[None])
    pack(model)

    got = model(
        input_ids=text[None],
        position_ids=torch.arange(12)[None],
        token_type_ids=types[None],
        cu_seq_lens_q=torch.tensor([0, 12], dtype=torch.int32),
    )

    difference = (got.last_hidden_state - want.last_hidden_state).abs().max()
    assert difference < TOLERANCE
