"""The right family is chosen, and a checkpoint that can't be compiled is refused by name."""

import inspect
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.registry import SPECS, match, pad_token_id
from reference_library import default_config, load_reference_model
from tiny_checkpoints import (
    FAMILIES,
    make_generative_checkpoint,
    make_tiny_checkpoint,
    remove_json_key,
    set_json_key,
)


def refusal(path: Path, task: Kind | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        match(read_hub_config(path), task=task)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_real_checkpoint_is_bert(minilm: Path) -> None:
    assert match(read_hub_config(minilm)).family == "bert"


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_found_by_its_model_type(checkpoints: dict[str, Path], family: str) -> None:
    spec = match(read_hub_config(checkpoints[family]))
    assert spec.family == family
    assert spec.has_token_types is (family == "bert")
    assert spec.positions_start_after_padding is (family not in ("bert", "distilbert"))
    assert spec.default_pooling is PoolingMode.CLS


def test_no_model_type_belongs_to_two_families() -> None:
    names = [name for spec in SPECS for name in spec.model_types]
    assert sorted(names) == sorted(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_facts_of_a_family_are_those_of_its_class_in_transformers(
    checkpoints: dict[str, Path], family: str
) -> None:
    spec = match(read_hub_config(checkpoints[family]))
    model = load_reference_model(checkpoints[family])
    assert type(model).__name__ == f"{spec.architectures[0]}Model"
    rows = dict(model.named_parameters())[spec.position_table].shape[0]
    assert rows == read_hub_config(checkpoints[family]).model.max_position_embeddings
    assert spec.has_pooler is ("add_pooling_layer" in inspect.signature(type(model)).parameters)
    assert spec.default_pad_token_id == default_config(family).pad_token_id
    takes_types = model.config.to_dict().get("type_vocab_size", 1) > 1
    assert spec.has_token_types is takes_types


@pytest.mark.parametrize(
    ("model_type", "nearest"),
    [("distilroberta", "distilbert"), ("bertt", "bert"), ("xlm_roberta", "xlm-roberta")],
)
def test_unknown_model_type_is_refused_with_the_nearest_families(
    bert: Path, model_type: str, nearest: str
) -> None:
    set_json_key(bert / "config.json", "model_type", model_type)
    message = refusal(bert)
    assert f'config.json: model_type "{model_type}" is not supported' in message
    assert nearest in message.partition("nearest supported: ")[2].split(", ")


def test_model_type_unlike_any_is_refused_with_all_families(bert: Path) -> None:
    set_json_key(bert / "config.json", "model_type", "zzz")
    message = refusal(bert)
    assert all(family in message for family in FAMILIES)


def test_huge_model_type_stays_one_short_sentence(bert: Path) -> None:
    set_json_key(bert / "config.json", "model_type", "bert\n" * 100_000)
    assert len(refusal(bert)) < 500 + len(str(bert))


def test_generative_checkpoint_needs_a_task(tmp_path: Path) -> None:
    path = make_generative_checkpoint(tmp_path)
    message = refusal(path)
    assert '"LlamaForCausalLM" is generative' in message
    assert "--task" in message
    assert 'model_type "llama" is not supported' in refusal(path, Kind.EMBEDDING)
    remove_json_key(path / "config.json", "architectures")
    assert "--task" in refusal(path)


@pytest.mark.parametrize("architecture", ["BertLMHeadModel", "BertForCausalLM"])
def test_causal_head_on_an_encoder_family_is_refused(tmp_path: Path, architecture: str) -> None:
    path = make_tiny_checkpoint("bert", tmp_path, pooling=None)
    set_json_key(path / "config.json", "architectures", [architecture])
    assert "--task" in refusal(path)
    assert f'"{architecture}" is not supported' in refusal(path, Kind.EMBEDDING)


@pytest.mark.parametrize("family", FAMILIES)
def test_pretraining_head_is_left_off_when_someone_says_it_embeds(
    tmp_path: Path, family: str
) -> None:
    path = make_tiny_checkpoint(family, tmp_path, head="MaskedLM", pooling=None)
    message = refusal(path)
    assert 'ForMaskedLM" is a pre-training checkpoint' in message
    assert "--task embedding" in message
    assert match(read_hub_config(path), task=Kind.EMBEDDING).family == family
    make_tiny_checkpoint(family, path, head="MaskedLM")
    assert match(read_hub_config(path)).family == family


@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
@pytest.mark.parametrize("task", [None, Kind.EMBEDDING])
def test_classifiers_are_refused_by_name(tmp_path: Path, head: str, task: Kind | None) -> None:
    path = make_tiny_checkpoint("roberta", tmp_path, head=head, pooling=None, num_labels=3)
    message = refusal(path, task)
    assert f'"RobertaFor{head}" is not supported' in message
    assert "this release compiles embedding models" in message


def test_other_architecture_under_a_known_model_type_is_refused(bert: Path) -> None:
    for name in ("JinaBertModel", "BertModelWithTricks", "NomicBertModel"):
        set_json_key(bert / "config.json", "architectures", [name])
        assert f'"{name}" is no bert model; expected a class such as BertModel' in refusal(bert)


def test_checkpoint_without_architectures_is_taken_for_its_bare_encoder(bert: Path) -> None:
    remove_json_key(bert / "config.json", "architectures")
    assert match(read_hub_config(bert)).family == "bert"


@pytest.mark.parametrize("task", [kind for kind in Kind if kind is not Kind.EMBEDDING])
def test_other_tasks_are_refused(bert: Path, task: Kind) -> None:
    assert f"--task: expected embedding, found {task.value}" in refusal(bert, task)


def test_checkpoint_of_another_kind_is_refused(bert: Path) -> None:
    set_json_key(bert / "config_sentence_transformers.json", "model_type", "SparseEncoder")
    assert 'found one of "SparseEncoder"' in refusal(bert)


@pytest.mark.parametrize(
    ("key", "value", "fragment"),
    [
        ("auto_map", {"AutoModel": "modeling.Model"}, "auto_map: expected a model of transformers"),
        ("is_decoder", True, "is_decoder: expected false"),
        ("quantization_config", {"bits": 4}, "quantization_config: expected plain weights"),
        (
            "position_embedding_type",
            "relative_key",
            "position_embedding_type: expected absolute, found",
        ),
        ("hidden_size", 30, "hidden_size: expected a multiple of the 4 attention heads, found 30"),
        ("hidden_size", 0, "hidden_size: expected at least 1"),
        ("num_attention_heads", 0, "num_attention_heads: expected at least 1"),
        ("num_hidden_layers", 0, "num_hidden_layers: expected at least 1"),
        ("pad_token_id", -1, "pad_token_id: expected an id below vocab_size"),
        ("pad_token_id", 10**6, "pad_token_id: expected an id below vocab_size"),
        ("vocab_size", None, "vocab_size: expected a whole number, found nothing"),
        ("max_position_embeddings", None, "max_position_embeddings: expected a whole number"),
    ],
)
def test_features_and_sizes_that_do_not_work_are_refused(
    bert: Path, key: str, value: object, fragment: str
) -> None:
    set_json_key(bert / "config.json", key, value)
    assert f"config.json: {fragment}" in refusal(bert)


def test_padding_id_falls_back_to_that_of_the_family(roberta: Path, bert: Path) -> None:
    for path, default in ((roberta, 1), (bert, 0)):
        set_json_key(path / "config.json", "pad_token_id", 7)
        config = read_hub_config(path)
        assert pad_token_id(config, match(config)) == 7
        remove_json_key(path / "config.json", "pad_token_id")
        config = read_hub_config(path)
        assert pad_token_id(config, match(config)) == default
