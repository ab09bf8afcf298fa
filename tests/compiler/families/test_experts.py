"""Experts by split sizes against the loop of transformers."""

import pytest
import torch
from torch import nn
from transformers import Qwen3MoeConfig, Qwen3MoeModel

from infinity_v3.compiler.families.experts import EXPERTS_NAME, run_experts
from packed_calls import encode_alone, largest_difference, random_texts, spread_weights

TOLERANCE = 1e-5


@pytest.fixture
def qwen() -> nn.Module:
    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=6,
        num_experts_per_tok=2,
        max_position_embeddings=128,
    )
    config._experts_implementation = "eager"
    return spread_weights(Qwen3MoeModel(config))


def test_a_mixture_of_transformers_gives_the_same(qwen: nn.Module) -> None:
    texts = random_texts((1, 2, 17, 64), vocab_size=64)
    eager = encode_alone(qwen, texts)

    qwen.set_experts_implementation(EXPERTS_NAME)

    assert largest_difference(encode_alone(qwen, texts), eager) < TOLERANCE


def test_each_token_meets_its_experts_in_order() -> None:
    hidden = torch.arange(1.0, 4.0)[:, None]
    chosen = torch.tensor([[2, 0], [0, 3], [2, 3]])

    got = run_experts(hidden, chosen, 5, lambda number, tokens: tokens + 10.0 * number)

    assert got[..., 0].tolist() == [[21.0, 1.0], [2.0, 32.0], [23.0, 33.0]]


def test_experts_of_another_layout_are_refused(qwen: nn.Module) -> None:
    qwen.set_experts_implementation(EXPERTS_NAME)
    qwen.layers[0].mlp.experts.has_bias = True

    with pytest.raises(NotImplementedError, match="experts with another has_bias"):
        encode_alone(qwen, random_texts((3,), vocab_size=64))
