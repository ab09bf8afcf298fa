"""MPNet in packed form against the class of transformers."""

import pytest
import torch
from torch import nn
from transformers import MPNetConfig, MPNetForSequenceClassification, MPNetModel

from infinity_v3.compiler.families import pack
from infinity_v3.compiler.families.mpnet import PackedMPNetModel
from packed_calls import (
    LENGTHS,
    encode_alone,
    encode_packed,
    largest_difference,
    random_texts,
    spread_weights,
)

TOLERANCE = 1e-5
FIRST_POSITION = 2
MAX_LENGTH = 200
"""Further than the last bucket reaches."""


def tiny_config() -> MPNetConfig:
    return MPNetConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=MAX_LENGTH + FIRST_POSITION,
    )


@pytest.fixture
def model() -> nn.Module:
    return spread_weights(MPNetModel(tiny_config(), add_pooling_layer=False))


def test_packed_texts_equal_each_text_alone(model: nn.Module) -> None:
    texts = random_texts((*LENGTHS, MAX_LENGTH), vocab_size=64)
    alone = encode_alone(model, texts)

    pack(model)

    packed = encode_packed(model, texts, first_position=FIRST_POSITION)
    assert largest_difference(packed, alone) < TOLERANCE


def test_the_buckets_of_distances_count(model: nn.Module) -> None:
    texts = random_texts((*LENGTHS, MAX_LENGTH), vocab_size=64)
    alone = encode_alone(model, texts)
    pack(model)

    model.get_buffer("distance_bias").zero_()

    packed = encode_packed(model, texts, first_position=FIRST_POSITION)
    assert largest_difference(packed, alone) > 100 * TOLERANCE


def test_the_encoder_within_a_head_is_packed() -> None:
    classifier = spread_weights(MPNetForSequenceClassification(tiny_config()))
    texts = random_texts(LENGTHS, vocab_size=64)
    alone = encode_alone(classifier.get_submodule("mpnet"), texts)

    pack(classifier)

    assert isinstance(classifier.mpnet, PackedMPNetModel)
    packed = encode_packed(classifier.mpnet, texts, first_position=FIRST_POSITION)
    assert largest_difference(packed, alone) < TOLERANCE


def test_the_bias_stays_float32_in_a_model_of_bfloat16(model: nn.Module) -> None:
    texts = random_texts(LENGTHS, vocab_size=64)
    pack(model)
    exact = encode_packed(model, texts, first_position=FIRST_POSITION)

    model.to(torch.bfloat16)

    rounded = encode_packed(model, texts, first_position=FIRST_POSITION)
    assert rounded[0].dtype == torch.bfloat16
    assert largest_difference(rounded, exact) < 0.2
