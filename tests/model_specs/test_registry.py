"""The right family is chosen, and a checkpoint that can't be compiled is refused by name."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.kind import resolve_kind
from infinity_v3.model_specs.registry import SPECS, attends_causally, match, pad_token_id
from infinity_v3.model_specs.spec import ModelSpec
from reference_library import default_config, load_reference_model
from tiny_checkpoints import (
    FAMILIES,
    make_generative_checkpoint,
    make_tiny_checkpoint,
    remove_json_key,
    set_json_key,
)
from tiny_families import TINY_FAMILIES

FAMILY_OF_RECIPE = {
    "deberta-v2-conv": "deberta-v2",
    "ultrabert-windows": "ultrabert",
    "new": "gte",
    "jina_embeddings_v3": "jina-v3",
    "llama_bidirec": "llama",
    "nemotron-embedding": "ministral3",
    "gemma3_text": "gemma3",
    "embeddinggemma": "gemma3",
}
"""Tiny families whose name is not that of their family."""
SEE_BOTH_WAYS = ("llama_bidirec", "nemotron-embedding", "embeddinggemma")


def family_of(path: Path) -> ModelSpec:
    return match(read_hub_config(path))


def kind_of(path: Path, task: Kind | None = None) -> Kind:
    config = read_hub_config(path)
    return resolve_kind(config, match(config), task, None)


def refusal(path: Path, task: Kind | None = None) -> str:
    """What is said of a checkpoint that has no family, or of no use in its family."""
    with pytest.raises(UsageError) as caught:
        kind_of(path, task)
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
    assert len(names) == len(set(names))
    assert set(FAMILIES) < set(names)
    families = [spec.family for spec in SPECS]
    assert len(families) == len(set(families))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.family)
def test_no_architecture_hides_a_longer_one(spec: ModelSpec) -> None:
    # The first prefix that fits is cut off, and what is left must be the head.
    for position, name in enumerate(spec.architectures):
        assert not any(name.startswith(earlier) for earlier in spec.architectures[:position])


@pytest.mark.parametrize("name", TINY_FAMILIES)
def test_every_family_that_is_written_as_its_public_checkpoints_are_is_found(
    tmp_path: Path, name: str
) -> None:
    path = make_tiny_checkpoint(name, tmp_path / name)
    spec = family_of(path)
    expected = FAMILY_OF_RECIPE.get(name, name)
    assert spec.family.replace("_", "-") == expected.replace("_", "-")
    assert kind_of(path) is Kind.EMBEDDING
    config = read_hub_config(path)
    assert attends_causally(config, spec) is (spec.is_causal and name not in SEE_BOTH_WAYS)


@pytest.mark.parametrize("family", FAMILIES)
def test_facts_of_a_family_are_those_of_its_class_in_transformers(
    checkpoints: dict[str, Path], family: str
) -> None:
    spec = family_of(checkpoints[family])
    model = load_reference_model(checkpoints[family])
    assert type(model).__name__ == f"{spec.architectures[0]}Model"
    (rows,) = [
        parameter.shape[0]
        for name, parameter in model.named_parameters()
        if name.endswith("position_embeddings.weight")
    ]
    assert rows == read_hub_config(checkpoints[family]).model.max_position_embeddings
    assert spec.default_pad_token_id == default_config(family).pad_token_id
    takes_types = model.config.to_dict().get("type_vocab_size", 1) > 1
    assert spec.has_token_types is takes_types


@pytest.mark.parametrize(
    "spec",
    [spec for spec in SPECS if spec.positions_start_after_padding],
    ids=lambda spec: spec.family,
)
def test_positions_that_start_after_padding_have_the_padding_of_transformers(
    spec: ModelSpec,
) -> None:
    assert spec.default_pad_token_id == default_config(spec.model_types[0]).pad_token_id


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
    assert "--task embedding" in message
    assert "--task reranker" in message
    assert family_of(path).family == "llama"
    for task in (Kind.EMBEDDING, Kind.RERANKER):
        assert kind_of(path, task) is task
    remove_json_key(path / "config.json", "architectures")
    assert "--task" in refusal(path)


def test_causal_head_on_an_encoder_family_needs_a_task(bert: Path) -> None:
    (bert / "modules.json").unlink()
    set_json_key(bert / "config.json", "architectures", ["BertForCausalLM"])
    assert "--task" in refusal(bert)
    assert kind_of(bert, Kind.EMBEDDING) is Kind.EMBEDDING
    set_json_key(bert / "config.json", "is_decoder", True)
    assert "config.json: is_decoder: expected false" in refusal(bert, Kind.EMBEDDING)


def test_a_head_that_no_task_has_a_use_for_is_refused_by_name(bert: Path) -> None:
    for name in ("BertLMHeadModel", "BertForQuestionAnswering", "BertForMultipleChoice"):
        set_json_key(bert / "config.json", "architectures", [name])
        for task in (None, Kind.EMBEDDING):
            assert f'"{name}" can\'t be compiled as embedding, which needs' in refusal(bert, task)


@pytest.mark.parametrize("family", FAMILIES)
def test_pretraining_head_is_left_off_when_someone_says_it_embeds(
    tmp_path: Path, family: str
) -> None:
    path = make_tiny_checkpoint(family, tmp_path, head="MaskedLM", pooling=None)
    message = refusal(path)
    assert 'ForMaskedLM" is a pre-training checkpoint' in message
    assert "--task embedding" in message
    assert "--task sparse" in message
    for task in (Kind.EMBEDDING, Kind.SPARSE):
        assert kind_of(path, task) is task
    make_tiny_checkpoint(family, path, head="MaskedLM")
    assert kind_of(path) is Kind.EMBEDDING


@pytest.mark.parametrize("name", TINY_FAMILIES)
def test_heads_of_every_family_say_their_kind(tmp_path: Path, name: str) -> None:
    kinds = {
        "SequenceClassification": Kind.CLASSIFIER,
        "TokenClassification": Kind.TOKEN_CLASSIFIER,
    }
    for head in [head for head in TINY_FAMILIES[name].heads if head in kinds]:
        path = make_tiny_checkpoint(name, tmp_path / head, head=head, pooling=None, num_labels=3)
        assert kind_of(path) is kinds[head]
        if name not in ("gte", "new"):
            message = refusal(path, Kind.EMBEDDING)
            assert (
                f"For{head}\" can't be compiled as embedding, which needs a bare model" in message
            )


def test_one_label_makes_a_reranker(tmp_path: Path) -> None:
    path = make_tiny_checkpoint(
        "roberta", tmp_path, head="SequenceClassification", pooling=None, num_labels=1
    )
    assert kind_of(path) is Kind.RERANKER
    assert kind_of(path, Kind.CLASSIFIER) is Kind.CLASSIFIER


def test_other_architecture_under_a_known_model_type_is_refused(bert: Path) -> None:
    for name in ("RobertaModel", "BertModelWithTricks", "NomicBertModel"):
        set_json_key(bert / "config.json", "architectures", [name])
        assert f'"{name}" is no bert model; expected a class such as BertModel' in refusal(bert)


def test_checkpoint_without_architectures_is_taken_for_its_bare_encoder(bert: Path) -> None:
    remove_json_key(bert / "config.json", "architectures")
    assert family_of(bert).family == "bert"
    assert kind_of(bert) is Kind.EMBEDDING


@pytest.mark.parametrize(
    "task", [kind for kind in Kind if kind not in (Kind.EMBEDDING, Kind.DECISION)]
)
def test_an_embedding_checkpoint_is_nothing_else(bert: Path, task: Kind) -> None:
    message = refusal(bert, task)
    assert f"can't be compiled as {task.value}" in message or f"--task {task.value}" in message


def test_a_checkpoint_without_a_decision_head_decides_nothing(bert: Path) -> None:
    assert refusal(bert, Kind.DECISION).startswith(
        "--task decision: expected rl_agent_config.json in "
    )


def test_a_checkpoint_of_another_class_needs_its_head(bert: Path) -> None:
    # What the library says it is comes before what the modules look like.
    set_json_key(bert / "config_sentence_transformers.json", "model_type", "SparseEncoder")
    assert "modules.json: expected Transformer, then SpladePooling; found" in refusal(bert)
    (bert / "modules.json").unlink()
    assert '"BertModel" can\'t be compiled as sparse' in refusal(bert)


def test_code_of_a_checkpoint_is_only_passed_over_where_the_family_is_our_own(
    tmp_path: Path,
) -> None:
    built_in = {spec.family for spec in SPECS if spec.is_built_in}
    assert built_in
    for name in ("bert", "new", "nomic_bert"):
        path = make_tiny_checkpoint(name, tmp_path / name)
        is_ours = family_of(path).family in built_in
        set_json_key(path / "config.json", "auto_map", {"AutoModel": "modeling.Model"})
        if is_ours:
            assert family_of(path).is_built_in
        else:
            assert "auto_map: expected a model of transformers itself" in refusal(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("position_embedding_type", "alibi"), ("architectures", ["JinaBertForMaskedLM"])],
)
def test_jina_bert_is_found_under_the_model_type_of_bert(
    bert: Path, key: str, value: object
) -> None:
    set_json_key(bert / "config.json", key, value)
    assert "jina" in family_of(bert).family


def test_the_first_release_of_jina_v3_is_refused_with_its_conversion(roberta: Path) -> None:
    config = roberta / "config.json"
    set_json_key(config, "model_type", "xlm-roberta")
    set_json_key(config, "position_embedding_type", "rotary")
    assert "compile its conversion jinaai/jina-embeddings-v3-hf" in refusal(roberta)


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
