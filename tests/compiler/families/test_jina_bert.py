"""JinaBERT v2 against llama.cpp, and packed against one text at a time."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from infinity_v3.compiler.families import adopt
from infinity_v3.compiler.families.jina_bert import JinaBertModel, alibi_slopes
from infinity_v3.compiler.reference import PACKED_ATTENTION
from llama_oracle import LlamaOracle, run_llama
from oracle_distance import EXACT, JUMP, distances_to_llama
from packed_calls import LENGTHS, encode_alone, encode_packed, largest_difference, random_texts
from published_checkpoints import make_jina_bert_checkpoint, read_config
from table_gelu import use_table_gelu

TOLERANCE = 1e-5
MAX_LENGTH = 512
LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "six heads": {"hidden_size": 48, "num_heads": 6},
    "code": {"query_key_norm": True},
}


class Case(NamedTuple):
    checkpoint: Path
    oracle: LlamaOracle


def load(checkpoint: Path, attention: str = "eager") -> JinaBertModel:
    config = adopt(read_config(checkpoint))
    model, report = AutoModel.from_pretrained(
        checkpoint,
        config=config,
        attn_implementation=attention,
        add_pooling_layer=False,
        output_loading_info=True,
    )
    assert not report["missing_keys"]
    heads = ("pooler.", "bert.pooler.", "classifier.")
    assert all(name.startswith(heads) for name in report["unexpected_keys"])
    loaded: JinaBertModel = model.eval().requires_grad_(False)
    return loaded


def texts_for(model: JinaBertModel) -> list[torch.Tensor]:
    return random_texts((*LENGTHS, MAX_LENGTH), vocab_size=model.config.vocab_size)


@pytest.fixture(scope="module", params=LAYOUTS)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    root = tmp_path_factory.mktemp("jina")
    checkpoint = make_jina_bert_checkpoint(root / "checkpoint", **LAYOUTS[request.param])
    with run_llama(checkpoint, root) as oracle:
        yield Case(checkpoint, oracle)


def test_hidden_states_are_those_of_llama(case: Case) -> None:
    model = load(case.checkpoint)
    use_table_gelu(model)

    distances = distances_to_llama(model, case.oracle, texts_for(model))

    assert np.quantile(distances, 0.75) < EXACT
    assert distances.max() < JUMP


def test_the_activation_itself_is_the_exact_gelu(case: Case) -> None:
    model = load(case.checkpoint)

    # What the tanh form and the table cost llama.cpp.
    assert distances_to_llama(model, case.oracle, texts_for(model)).max() < 2 * JUMP
    (activation,) = {
        type(module.get_submodule("act")) for module in model.modules() if hasattr(module, "act")
    }
    assert activation()(torch.tensor(1.0)) == pytest.approx(0.8413447, abs=1e-7)


def test_the_slopes_of_alibi_count(case: Case) -> None:
    model = load(case.checkpoint)
    use_table_gelu(model)

    model.encoder.slopes = [0.0] * len(model.encoder.slopes)

    distances = distances_to_llama(model, case.oracle, texts_for(model))
    assert np.quantile(distances, 0.75) > 100 * EXACT
    assert distances.max() > 100 * JUMP


@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_texts_equal_each_text_alone(layout: str, tmp_path: Path) -> None:
    checkpoint = make_jina_bert_checkpoint(tmp_path, **LAYOUTS[layout])
    model, packed = load(checkpoint), load(checkpoint, PACKED_ATTENTION)
    texts = texts_for(model)
    alone = encode_alone(model, texts)

    assert largest_difference(encode_packed(packed, texts), alone) < TOLERANCE

    packed.encoder.slopes = [0.0] * len(packed.encoder.slopes)
    assert largest_difference(encode_packed(packed, texts), alone) > 100 * TOLERANCE


def test_padding_and_sdpa_change_nothing(tmp_path: Path) -> None:
    checkpoint = make_jina_bert_checkpoint(tmp_path)
    model, sdpa = load(checkpoint), load(checkpoint, "sdpa")
    text, longer = random_texts((9, 30), vocab_size=model.config.vocab_size)
    (alone,) = encode_alone(model, [text])
    padded = torch.cat([text, torch.zeros(21, dtype=torch.int64)])
    mask = torch.stack([torch.arange(30) < 9, torch.arange(30) < 30]).long()

    for encoder in (model, sdpa):
        output = encoder(input_ids=torch.stack([padded, longer]), attention_mask=mask)
        assert (output.last_hidden_state[0, :9] - alone).abs().max() < TOLERANCE


def test_types_reach_the_embeddings(tmp_path: Path) -> None:
    model = load(make_jina_bert_checkpoint(tmp_path))
    (text,) = random_texts((8,), vocab_size=model.config.vocab_size)

    first, second = (
        model(input_ids=text[None], token_type_ids=torch.full((1, 8), kind)) for kind in (0, 1)
    )

    assert (first.last_hidden_state - second.last_hidden_state).abs().max() > 100 * TOLERANCE


def test_a_classifier_reads_the_pooled_first_token(tmp_path: Path) -> None:
    checkpoint = make_jina_bert_checkpoint(tmp_path, num_labels=1)
    model, report = AutoModelForSequenceClassification.from_pretrained(
        checkpoint, config=adopt(read_config(checkpoint)), output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    (text,) = random_texts((12,), vocab_size=model.config.vocab_size)

    with torch.inference_mode():
        logits = model.eval()(input_ids=text[None]).logits
        first = model.bert(input_ids=text[None]).last_hidden_state[0, 0]
        pooled = torch.tanh(model.bert.pooler.dense(first))
        want = model.classifier.weight @ pooled + model.classifier.bias

    assert logits.shape == (1, 1)
    assert torch.allclose(logits[0], want, atol=1e-6)


def test_the_encoder_of_a_classifier_loads_alone(tmp_path: Path) -> None:
    load(make_jina_bert_checkpoint(tmp_path, num_labels=3))


def test_slopes_for_other_than_a_power_of_two_heads() -> None:
    assert alibi_slopes(8) == [2.0**-power for power in range(1, 9)]
    assert alibi_slopes(12) == alibi_slopes(8) + [2.0**-power for power in (0.5, 1.5, 2.5, 3.5)]
