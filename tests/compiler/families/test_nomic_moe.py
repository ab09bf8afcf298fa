"""NomicBERT with experts against llama.cpp, and packed against one text at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from transformers import AutoModel, PreTrainedModel

from infinity_v3.compiler.families import adopt
from infinity_v3.compiler.families.nomic_moe import NomicMoeMixture, NomicMoeModel
from infinity_v3.compiler.reference import PACKED_ATTENTION
from llama_oracle import LlamaOracle, run_llama
from oracle_distance import EXACT, JUMP, distances_to_llama
from packed_calls import LENGTHS, encode_alone, encode_packed, largest_difference, random_texts
from published_checkpoints import (
    make_nomic_bert_checkpoint,
    make_nomic_moe_checkpoint,
    read_config,
)
from table_gelu import use_table_gelu

TOLERANCE = 1e-5
MAX_LENGTH = 512


class Case(NamedTuple):
    checkpoint: Path
    oracle: LlamaOracle


def load(checkpoint: Path, attention: str = "eager") -> PreTrainedModel:
    model, report = AutoModel.from_pretrained(
        checkpoint,
        config=adopt(read_config(checkpoint)),
        attn_implementation=attention,
        output_loading_info=True,
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    loaded: PreTrainedModel = model.eval().requires_grad_(False)
    return loaded


def texts_for(model: PreTrainedModel) -> list[torch.Tensor]:
    return random_texts((*LENGTHS, MAX_LENGTH), vocab_size=model.config.vocab_size)


def mixtures(model: PreTrainedModel) -> list[NomicMoeMixture]:
    return [module for module in model.modules() if isinstance(module, NomicMoeMixture)]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """Without the bias of the experts, which llama.cpp leaves out."""
    root = tmp_path_factory.mktemp("nomic")
    checkpoint = make_nomic_moe_checkpoint(root / "checkpoint", expert_bias=False)
    with run_llama(checkpoint, root) as oracle:
        yield Case(checkpoint, oracle)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return make_nomic_moe_checkpoint(tmp_path)


def test_hidden_states_are_those_of_llama(case: Case) -> None:
    model = load(case.checkpoint)
    use_table_gelu(model)

    distances = distances_to_llama(model, case.oracle, texts_for(model))

    assert len(mixtures(model)) == 2
    assert np.quantile(distances, 0.75) < EXACT
    assert distances.max() < JUMP


def test_the_activation_itself_is_the_exact_gelu(case: Case) -> None:
    model = load(case.checkpoint)

    # What the tanh form and the table cost llama.cpp; a token may fall to another expert.
    distances = distances_to_llama(model, case.oracle, texts_for(model))
    assert np.quantile(distances, 0.95) < 2 * JUMP
    (activation,) = {
        type(module.get_submodule("act")) for module in model.modules() if hasattr(module, "act")
    }
    assert activation()(torch.tensor(1.0)) == pytest.approx(0.8413447, abs=1e-7)


@pytest.mark.parametrize("mutation", ["other experts", "one expert", "weights made to sum to one"])
def test_the_routing_counts(case: Case, mutation: str) -> None:
    model = load(case.checkpoint)
    use_table_gelu(model)

    for mixture in mixtures(model):
        if mutation == "other experts":
            mixture.router.layer.weight.neg_()
        elif mutation == "one expert":
            mixture.router.top_k = 1
        else:
            mixture.router.register_forward_hook(lambda _, __, routed: _made_to_sum(*routed))

    distances = distances_to_llama(model, case.oracle, texts_for(model))
    assert np.quantile(distances, 0.75) > 100 * EXACT
    assert distances.max() > 100 * JUMP


def _made_to_sum(weights: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return weights / weights.sum(-1, keepdim=True), chosen


def test_the_rotation_counts(case: Case) -> None:
    model = load(case.checkpoint)
    use_table_gelu(model)

    assert isinstance(model, NomicMoeModel)
    model.encoder.theta = 10.0

    distances = distances_to_llama(model, case.oracle, texts_for(model))
    assert np.quantile(distances, 0.75) > 100 * EXACT


def test_packed_texts_equal_each_text_alone(checkpoint: Path) -> None:
    model, packed = load(checkpoint), load(checkpoint, PACKED_ATTENTION)
    texts = texts_for(model)
    alone = encode_alone(model, texts)

    assert largest_difference(encode_packed(packed, texts), alone) < TOLERANCE
    for mixture in mixtures(packed):
        mixture.router.layer.weight.neg_()
    assert largest_difference(encode_packed(packed, texts), alone) > 100 * TOLERANCE


def test_a_mixture_is_the_weighted_sum_of_its_experts_and_one_bias(checkpoint: Path) -> None:
    (mixture, _) = mixtures(load(checkpoint))
    tokens = torch.randn(7, 32, generator=torch.Generator().manual_seed(0))
    experts = mixture.experts
    inner = 64

    for token, got in zip(tokens, mixture(tokens[None])[0], strict=True):
        scores = torch.softmax(mixture.router.layer.weight @ token, dim=0)
        want = experts.bias.clone()
        for expert in scores.argsort(descending=True)[:2].tolist():
            rows = slice(expert * inner, (expert + 1) * inner)
            middle = torch.nn.functional.gelu(experts.mlp.w1[rows] @ token)
            want += scores[expert] * (experts.mlp.w2[rows].T @ middle)
        assert torch.allclose(got, want, atol=1e-6)


def test_padding_and_sdpa_change_nothing(checkpoint: Path) -> None:
    model, sdpa = load(checkpoint), load(checkpoint, "sdpa")
    text, longer = random_texts((9, 30), vocab_size=model.config.vocab_size)
    (alone,) = encode_alone(model, [text])
    padded = torch.cat([text, torch.ones(21, dtype=torch.int64)])
    mask = torch.stack([torch.arange(30) < 9, torch.arange(30) < 30]).long()

    for encoder in (model, sdpa):
        output = encoder(input_ids=torch.stack([padded, longer]), attention_mask=mask)
        assert (output.last_hidden_state[0, :9] - alone).abs().max() < TOLERANCE


def test_dense_models_keep_their_published_sizes(tmp_path: Path) -> None:
    """The class is transformers' own, which does not know sizes by their published names."""
    checkpoint = make_nomic_bert_checkpoint(tmp_path / "checkpoint")
    model = load(checkpoint)

    with run_llama(checkpoint, tmp_path) as oracle:
        distances = distances_to_llama(model, oracle, texts_for(model))

    assert model.config.num_hidden_layers == 3
    assert distances.max() < EXACT
