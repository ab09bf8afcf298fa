"""Experts by split sizes against the loop of transformers."""

from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeModel

from infinity_v3.compiler.families.experts import EXPERTS_NAME, Routing
from packed_calls import encode_alone, largest_difference, random_texts, spread_weights

TOLERANCE = 1e-5


@pytest.fixture
def qwen() -> Qwen3MoeModel:
    config = Qwen3MoeConfig(  # type: ignore[call-arg]  # keeps further keywords as attributes
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


def test_a_mixture_of_transformers_gives_the_same(qwen: Qwen3MoeModel) -> None:
    texts = random_texts((1, 2, 17, 64), vocab_size=64)
    eager = encode_alone(qwen, texts)

    qwen.set_experts_implementation(EXPERTS_NAME)

    assert largest_difference(encode_alone(qwen, texts), eager) < TOLERANCE


def test_each_token_meets_its_experts_in_order() -> None:
    tokens = torch.arange(1.0, 4.0)[:, None]
    routing = Routing(torch.tensor([[2, 0], [0, 3], [2, 3]]), 5)
    doubled = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])[:, None, None]

    rows = routing.multiply(routing.gather(tokens), doubled)

    assert rows[:, 0].tolist() == [1.0, 2.0, 4.0, 12.0, 16.0, 24.0]
    weights = torch.tensor([[1.0, 0.5], [0.0, 1.0], [1.0, 1.0]])
    assert routing.weigh(rows, weights)[:, 0].tolist() == [4.5, 16.0, 36.0]


def test_experts_of_another_layout_are_refused(qwen: Qwen3MoeModel) -> None:
    qwen.set_experts_implementation(EXPERTS_NAME)
    experts: Any = qwen.get_submodule("layers.0.mlp.experts")
    experts.has_bias = True

    with pytest.raises(NotImplementedError, match="experts with another has_bias"):
        encode_alone(qwen, random_texts((3,), vocab_size=64))
