"""Loading the checkpoint's own model: what does not fit together is refused, by name."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.reference import (
    SDPA_FROM_TOKENS,
    ModelClass,
    ModelSource,
    Reference,
    encoder_of,
    load_model,
)
from infinity_v3.compiler.safetensors_header import CheckpointError
from infinity_v3.compiler.tasks.task import Probe
from tiny_checkpoints import make_tiny_checkpoint, set_json_key

BIAS = "encoder.layer.1.output.dense.bias"
NORM = "embeddings.LayerNorm.weight"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint("bert", tmp_path_factory.mktemp("reference") / "bert")


@pytest.fixture
def checkpoint(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "checkpoint"))


def load(checkpoint: Path, model_class: ModelClass = ModelClass.ENCODER) -> torch.nn.Module:
    return load_model(ModelSource(path=checkpoint), model_class, dtype=torch.float32)


def refusal(
    checkpoint: Path,
    error: type[UsageError] = UsageError,
    model_class: ModelClass = ModelClass.ENCODER,
) -> str:
    with pytest.raises(error) as caught:
        load(checkpoint, model_class)
    message = str(caught.value)
    assert message.startswith(str(checkpoint))
    assert "\n" not in message
    return message


def change_weights(checkpoint: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    file = checkpoint / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})


@pytest.mark.parametrize(
    ("key", "value", "fragments"),
    [
        ("hidden_act", "nope", ["hidden_act: expected an activation of transformers", '"nope"']),
        ("hidden_act", "gelo", ["did you mean gelu?"]),
        ("hidden_act", 3, ["cannot read it", "'hidden_act' expected str, got int"]),
        ("hidden_dropout_prob", "x", ["cannot read it", "'hidden_dropout_prob'"]),
        ("hidden_dropout_prob", 5.0, ["cannot build the model", "between 0 and 1, but got 5.0"]),
        ("intermediate_size", -3, ["cannot build the model", "negative dimension -3"]),
        ("dtype", "nope", ["cannot read it", "has no attribute 'nope'"]),
    ],
)
def test_what_transformers_refuses_is_one_sentence_about_the_file(
    checkpoint: Path, key: str, value: object, fragments: list[str]
) -> None:
    set_json_key(checkpoint / "config.json", key, value)
    message = refusal(checkpoint)
    assert message.startswith(f"{checkpoint / 'config.json'}: ")
    assert "correct the file or fetch the checkpoint again" in message
    for fragment in fragments:
        assert fragment in message


def test_the_activation_of_distilbert_has_another_key(tmp_path: Path) -> None:
    checkpoint = make_tiny_checkpoint("distilbert", tmp_path / "distilbert")
    set_json_key(checkpoint / "config.json", "activation", "nope")
    assert "config.json: activation: expected an activation" in refusal(checkpoint)


@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size"])
def test_weights_of_another_shape(checkpoint: Path, key: str) -> None:
    set_json_key(checkpoint / "config.json", key, 128)
    assert "weights have another shape than config.json asks for" in refusal(checkpoint)


def test_fewer_layers_in_the_weights(checkpoint: Path) -> None:
    set_json_key(checkpoint / "config.json", "num_hidden_layers", 3)
    message = refusal(checkpoint, CheckpointError)
    assert "16 weights that the architecture needs are absent" in message
    assert "the first is encoder.layer.2.attention.output.LayerNorm.bias" in message


@pytest.mark.parametrize(
    ("family", "head", "key", "first"),
    [
        ("bert", None, "num_hidden_layers", "encoder.layer.1."),
        ("bert", "MaskedLM", "num_hidden_layers", "encoder.layer.1."),
        ("xlm-roberta", "MaskedLM", "num_hidden_layers", "encoder.layer.1."),
        ("distilbert", None, "n_layers", "transformer.layer.1."),
    ],
)
def test_more_layers_in_the_weights(
    tmp_path: Path, family: str, head: str | None, key: str, first: str
) -> None:
    checkpoint = make_tiny_checkpoint(family, tmp_path / "checkpoint", head=head)
    set_json_key(checkpoint / "config.json", key, 1)
    message = refusal(checkpoint, CheckpointError)
    assert message.startswith(f"{checkpoint / 'config.json'}: expected as many layers")
    assert first in message
    assert "16 weights are left over" in message


@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification"])
def test_heads_may_be_left_over(tmp_path: Path, head: str) -> None:
    load(make_tiny_checkpoint("bert", tmp_path / "checkpoint", head=head))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite(checkpoint: Path, value: float) -> None:
    change_weights(checkpoint, lambda tensors: tensors[BIAS][3].fill_(value))
    message = refusal(checkpoint, CheckpointError)
    assert f"tensor {BIAS}: expected finite numbers, found 1 of 32" in message


def test_a_head_that_is_left_out_may_hold_anything(checkpoint: Path) -> None:
    extra = {"cls.bias": torch.tensor([float("nan")]), "cls.ids": torch.tensor([1])}
    change_weights(checkpoint, lambda tensors: tensors.update(extra))
    load(checkpoint)


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("stored_as", [NORM, "embeddings.LayerNorm.gamma"])
def test_a_weight_of_whole_numbers(checkpoint: Path, prefix: str, stored_as: str) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        weight = tensors.pop(NORM)
        renamed = {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
        tensors.clear()
        tensors.update(renamed | {f"{prefix}{stored_as}": weight.to(torch.int32)})

    change_weights(checkpoint, change)
    message = refusal(checkpoint, CheckpointError)
    assert f"model.safetensors: tensor {prefix}{stored_as}: expected a floating-point" in message
    assert "found I32" in message


def test_a_buffer_of_whole_numbers_is_fine(checkpoint: Path) -> None:
    positions = {"embeddings.position_ids": torch.arange(512)[None]}
    change_weights(checkpoint, lambda tensors: tensors.update(positions))
    load(checkpoint)


@pytest.mark.parametrize(
    ("head", "model_class", "absent"),
    [
        ("SequenceClassification", ModelClass.SEQUENCE_CLASSIFIER, "classifier."),
        ("TokenClassification", ModelClass.TOKEN_CLASSIFIER, "classifier."),
        ("MaskedLM", ModelClass.MASKED_LM, "cls.predictions."),
    ],
)
def test_a_head_must_be_among_the_weights(
    checkpoint: Path, tmp_path: Path, head: str, model_class: ModelClass, absent: str
) -> None:
    whole = make_tiny_checkpoint("bert", tmp_path / "whole", head=head, pooling=None)
    assert type(load(whole, model_class)).__name__ == f"BertFor{head}"
    message = refusal(checkpoint, CheckpointError, model_class)
    assert "weights that the architecture needs are absent" in message
    assert absent in message


def test_a_head_of_another_shape(tmp_path: Path) -> None:
    checkpoint = make_tiny_checkpoint(
        "bert", tmp_path / "bert", head="SequenceClassification", num_labels=3, pooling=None
    )
    source = ModelSource(path=checkpoint, num_labels=5)
    with pytest.raises(UsageError) as caught:
        load_model(source, ModelClass.SEQUENCE_CLASSIFIER, dtype=torch.float32)
    assert "weights have another shape than config.json asks for" in str(caught.value)
    assert "classifier" in str(caught.value)


def reference_of(checkpoint: Path) -> Reference:
    return Reference(ModelSource(path=checkpoint), ModelClass.ENCODER)


def probe(
    length: int, *, types: NDArray[np.int64] | None = None, key_count: int | None = None
) -> Probe:
    ids = np.random.default_rng(length).integers(5, 100, length)
    return Probe(ids=ids, types=types, key_count=key_count)


def test_the_reference_sees_token_types(checkpoint: Path) -> None:
    reference = reference_of(checkpoint)
    plain, zeros, typed = (
        reference.run(probe(6, types=types)).last_hidden_state
        for types in (None, np.zeros(6, dtype=np.int64), np.arange(6) % 2)
    )
    assert torch.equal(plain, zeros)
    assert (plain - typed).abs().max() > 1e-3


def test_the_reference_hides_the_tokens_behind_a_key_count(checkpoint: Path) -> None:
    reference = reference_of(checkpoint)
    whole, half = probe(6), probe(6, key_count=4)
    head = Probe(ids=whole.ids[:4])
    seen = reference.run(half).last_hidden_state[0]
    assert len(seen) == 6
    assert (seen[:4] - reference.run(head).last_hidden_state[0]).abs().max() <= 1e-5
    assert (seen - reference.run(whole).last_hidden_state[0]).abs().max() > 1e-3


def test_long_inputs_take_another_attention_and_the_same_numbers(tmp_path: Path) -> None:
    length = SDPA_FROM_TOKENS
    checkpoint = make_tiny_checkpoint(
        "distilbert", tmp_path / "long", max_positions=length, num_layers=1
    )
    reference = reference_of(checkpoint)
    long = probe(length)
    found = reference.run(long).last_hidden_state
    eager = load(checkpoint)
    with torch.inference_mode():
        expected = eager(torch.from_numpy(long.ids)[None]).last_hidden_state
    assert (found - expected).abs().max() <= 1e-5


def test_a_reference_with_a_head_gives_its_output_and_the_encoder_s(tmp_path: Path) -> None:
    checkpoint = make_tiny_checkpoint(
        "bert", tmp_path / "bert", head="SequenceClassification", num_labels=3, pooling=None
    )
    reference = Reference(ModelSource(path=checkpoint), ModelClass.SEQUENCE_CLASSIFIER)
    assert reference.run(probe(5)).logits.shape == (1, 3)
    assert reference.run_encoder(probe(5)).last_hidden_state.shape == (1, 5, 32)
    weight = load_file(checkpoint / "model.safetensors")["classifier.weight"]
    assert torch.equal(dict(reference.module("classifier").named_parameters())["weight"], weight)


@pytest.mark.parametrize("sees_both_ways", [False, True])
def test_a_decoder_sees_the_past_unless_it_was_trained_as_an_encoder(
    tmp_path: Path, sees_both_ways: bool
) -> None:
    checkpoint = make_tiny_checkpoint("llama", tmp_path / "llama")
    source = ModelSource(path=checkpoint, sees_both_ways=sees_both_ways)
    reference = Reference(source, ModelClass.ENCODER)
    long = probe(8)
    whole = reference.run(long).last_hidden_state[0, :5]
    start = reference.run(Probe(ids=long.ids[:5])).last_hidden_state[0]
    difference = float((whole - start).abs().max())
    assert (difference > 1e-3) if sees_both_ways else (difference <= 1e-5)


def test_the_encoder_of_a_model_is_without_its_head(tmp_path: Path) -> None:
    checkpoint = make_tiny_checkpoint("roberta", tmp_path / "roberta", head="MaskedLM")
    model = load_model(ModelSource(path=checkpoint), ModelClass.MASKED_LM, dtype=torch.float32)
    assert type(encoder_of(model)).__name__ == "RobertaModel"
