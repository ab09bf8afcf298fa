"""Which published configurations are taken over, and what is refused by name."""

from pathlib import Path
from typing import Any

import pytest
from transformers import NomicBertConfig

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.families import adopt
from infinity_v3.compiler.families.jina_bert_config import JinaBertConfig
from infinity_v3.compiler.families.nomic_bert_config import NomicMoeConfig
from published_checkpoints import (
    make_jina_bert_checkpoint,
    make_nomic_bert_checkpoint,
    make_nomic_moe_checkpoint,
    read_config,
)


@pytest.fixture
def jina(tmp_path: Path) -> dict[str, Any]:
    return read_config(make_jina_bert_checkpoint(tmp_path, num_labels=3, max_positions=8192))


@pytest.fixture
def moe(tmp_path: Path) -> dict[str, Any]:
    return read_config(make_nomic_moe_checkpoint(tmp_path, num_experts=4, top_k=1))


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"model_type": "bert", "architectures": ["BertModel"]},
        {"model_type": "bert", "position_embedding_type": "absolute", "architectures": None},
        {"model_type": "nomic_bert", "hidden_size": 32},
        {"model_type": "qwen3_moe", "num_experts": 8},
    ],
)
def test_others_are_left_to_transformers(raw: dict[str, Any]) -> None:
    assert adopt(raw) is None


def test_jina_bert(jina: dict[str, Any]) -> None:
    config = adopt(jina)

    assert isinstance(config, JinaBertConfig)
    assert (config.hidden_size, config.max_position_embeddings) == (32, 8192)
    assert (config.num_labels, config.query_key_norm) == (3, False)


def test_jina_bert_under_another_architecture(jina: dict[str, Any]) -> None:
    jina |= {"architectures": ["HF_ColBERT"]}
    del jina["auto_map"]

    assert isinstance(adopt(jina), JinaBertConfig)


@pytest.mark.parametrize("key", ["_name_or_path", "auto_map"])
def test_the_second_layout_is_known_by_its_repository(jina: dict[str, Any], key: str) -> None:
    name = "jinaai/jina-bert-v2-qk-post-norm"
    jina[key] = name if key == "_name_or_path" else {"AutoModel": f"{name}--modeling_bert.Model"}

    config = adopt(jina)

    assert isinstance(config, JinaBertConfig)
    assert config.query_key_norm


@pytest.mark.parametrize(
    ("key", "value"),
    [("position_embedding_type", "absolute"), ("feed_forward_type", "original")],
)
def test_another_jina_bert_is_refused(jina: dict[str, Any], key: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"{key}: expected .*, found '{value}'"):
        adopt(jina | {key: value})


def test_nomic_bert_with_experts(moe: dict[str, Any]) -> None:
    config = adopt(moe)

    assert isinstance(config, NomicMoeConfig)
    assert (config.num_experts, config.moe_top_k, config.moe_every_n_layers) == (4, 1, 2)
    assert (config.hidden_size, config.layer_norm_eps, config.rope_theta) == (32, 1e-5, 10000.0)
    assert (config.max_position_embeddings, config.pad_token_id) == (512, 1)


def test_nomic_bert_stays_within_its_trained_positions(moe: dict[str, Any]) -> None:
    config = adopt(moe | {"n_positions": 8192})

    assert isinstance(config, NomicMoeConfig)
    assert config.max_position_embeddings == 2048


def test_nomic_bert_without_experts(tmp_path: Path) -> None:
    config = adopt(read_config(make_nomic_bert_checkpoint(tmp_path)))

    assert isinstance(config, NomicBertConfig)
    assert (config.hidden_size, config.intermediate_size) == (32, 64)
    assert config.rope_parameters is not None
    assert config.rope_parameters["rope_theta"] == 1000.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prenorm", True),
        ("rotary_emb_fraction", 0.5),
        ("qkv_proj_bias", False),
        ("activation_function", "swiglu"),
        ("moe_normalize_expert_weights", True),
    ],
)
def test_another_nomic_bert_is_refused(moe: dict[str, Any], key: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"{key}: expected .*, found {value!r}"):
        adopt(moe | {key: value})
