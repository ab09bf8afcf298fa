"""Numbers of config.json that no model can be computed with, and words that score nothing."""

import json
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.model_specs.classifier_head import resolve_classifier_head
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.kind import resolve_kind
from infinity_v3.model_specs.registry import match
from infinity_v3.model_specs.transformer_config import TransformerConfig, read_transformer_config
from infinity_v3.model_specs.yes_no_head import resolve_yes_no_head
from published_checkpoints import make_jina_bert_checkpoint, make_nomic_moe_checkpoint
from tiny_checkpoints import make_tiny_checkpoint, set_json_key, write_json
from tiny_families import SEQUENCE
from tiny_retrievers import make_yes_no_reranker_checkpoint


def read(folder: Path, **values: object) -> TransformerConfig:
    write_json(folder / "config.json", {"model_type": "llama", **values})
    return read_transformer_config(folder / "config.json")


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("kind", ["dynamic", "longrope", "banana", "ntk"])
def test_positions_that_are_scaled_in_another_way(tmp_path: Path, key: str, kind: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, **{key: {"rope_type": kind, "factor": 2.0}})
    expected = f"{key}.rope_type: expected one of default, linear, yarn, llama3, found"
    assert f'{expected} "{kind}"' in str(caught.value)


def test_scaled_positions_of_one_kind_of_layer(tmp_path: Path) -> None:
    rope = {"full_attention": {"type": "dynamic"}, "sliding_attention": {"rope_theta": 10.0}}
    with pytest.raises(UsageError) as caught:
        read(tmp_path, rope_parameters=rope)
    assert "rope_parameters.full_attention.type: expected one of default" in str(caught.value)


@pytest.mark.parametrize("kind", ["default", "linear", "yarn", "llama3"])
def test_positions_that_are_scaled_as_compiled(tmp_path: Path, kind: str) -> None:
    assert read(tmp_path, rope_scaling={"type": kind, "factor": 2.0}).model_type == "llama"


def test_gte_has_a_scaling_of_its_own(tmp_path: Path) -> None:
    scaling = {"type": "ntk", "factor": 8.0}
    assert read(tmp_path, model_type="new", rope_scaling=scaling).model_type == "new"


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"attn_logit_softcapping": 0.0}, "attn_logit_softcapping"),
        ({"attn_logit_softcapping": "50"}, "attn_logit_softcapping"),
        ({"query_pre_attn_scalar": -4}, "query_pre_attn_scalar"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "rope_scaling.factor"),
    ],
)
def test_a_number_that_is_not_above_zero(
    tmp_path: Path, values: dict[str, object], where: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, **values)
    assert f"config.json: {where}: expected a finite number above 0" in str(caught.value)


@pytest.mark.parametrize("count", ["num_experts", "num_local_experts"])
@pytest.mark.parametrize("chosen", ["num_experts_per_tok", "moe_top_k"])
@pytest.mark.parametrize("number", [0, 5])
def test_more_experts_chosen_than_there_are(
    tmp_path: Path, count: str, chosen: str, number: int
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, **{count: 4, chosen: number})
    assert f"{chosen}: expected a whole number from 1 to 4, found {number}" in str(caught.value)


def test_experts_are_found_under_either_name(tmp_path: Path) -> None:
    assert read(tmp_path, num_local_experts=4).has_experts
    assert read(tmp_path, num_experts=4).has_experts
    assert not read(tmp_path, num_experts=0, moe_top_k=2).has_experts


@pytest.mark.parametrize(
    ("make", "family"),
    [
        (make_jina_bert_checkpoint, "jina_bert_v2"),
        (make_nomic_moe_checkpoint, "nomic_bert_moe"),
    ],
)
def test_a_family_without_a_sparse_head(tmp_path: Path, make: object, family: str) -> None:
    assert callable(make)
    config = read_hub_config(make(tmp_path))
    with pytest.raises(UsageError, match=f"masked language model of {family} can't be compiled"):
        resolve_kind(config, match(config), Kind.SPARSE, None)


def test_one_word_for_yes_and_no(tmp_path: Path) -> None:
    config = read_hub_config(make_yes_no_reranker_checkpoint("qwen3", tmp_path))
    with pytest.raises(UsageError, match="expected two different tokens for yes and no"):
        resolve_yes_no_head(config, yes="yes", no="yes")


def test_one_stored_token_for_yes_and_no(tmp_path: Path) -> None:
    checkpoint = make_yes_no_reranker_checkpoint("qwen3", tmp_path, modules=True)
    file = checkpoint / "1_LogitScore" / "config.json"
    stored = json.loads(file.read_text(encoding="utf-8"))
    set_json_key(file, "false_token_id", stored["true_token_id"])
    with pytest.raises(UsageError, match="expected two different tokens for yes and no"):
        resolve_yes_no_head(read_hub_config(checkpoint), yes=None, no=None)


def test_an_endless_word_is_cut(tmp_path: Path) -> None:
    config = read_hub_config(make_yes_no_reranker_checkpoint("qwen3", tmp_path))
    with pytest.raises(UsageError) as caught:
        resolve_yes_no_head(config, yes="y" * 5000, no=None)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("labels", "function"),
    [(("x",), "the sigmoid of the logit"), (("x", "y"), "the softmax of the logits")],
)
def test_scores_of_a_regression_are_told(
    tmp_path: Path, labels: tuple[str, ...], function: str
) -> None:
    make_tiny_checkpoint(
        "bert", tmp_path, head=SEQUENCE, pooling=None, labels=labels, problem_type="regression"
    )
    config = read_hub_config(tmp_path)
    head = resolve_classifier_head(config, match(config), Kind.CLASSIFIER, len(labels))
    (warning,) = head.warnings
    assert f"problem_type is regression, and scores are {function}" in warning
