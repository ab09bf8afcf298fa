"""Modules of sentence-transformers and PyLate are known by name, and only in the known orders."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.module_list import (
    Module,
    ModuleKind,
    check_order,
    class_of,
    read_module_list,
)
from tiny_checkpoints import set_json_key, write_json
from tiny_retrievers import make_splade_checkpoint

ST = "sentence_transformers"
NAMES = {
    f"{ST}.sparse_encoder.models.MLMTransformer": ModuleKind.TRANSFORMER,
    f"{ST}.sparse_encoder.models.MLMTransformer.MLMTransformer": ModuleKind.TRANSFORMER,
    f"{ST}.sparse_encoder.modules.mlm_transformer.MLMTransformer": ModuleKind.TRANSFORMER,
    f"{ST}.sparse_encoder.models.SpladePooling.SpladePooling": ModuleKind.SPLADE_POOLING,
    f"{ST}.sparse_encoder.modules.splade_pooling.SpladePooling": ModuleKind.SPLADE_POOLING,
    f"{ST}.cross_encoder.modules.logit_score.LogitScore": ModuleKind.LOGIT_SCORE,
    f"{ST}.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask": (
        ModuleKind.MULTI_VECTOR_MASK
    ),
    f"{ST}.base.modules.dense.Dense": ModuleKind.DENSE,
    "pylate.models.Dense.Dense": ModuleKind.DENSE,
}
OTHERS = (
    f"{ST}.base.modules.router.Router",
    f"{ST}.multi_vector_encoder.modules.token_pooling.HierarchicalTokenPooling",
    f"{ST}.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding",
    "pylate.models.Transformer",
    "custom_st.Transformer",
)


def modules(letters: str) -> tuple[Module, ...]:
    kinds = {kind.value[0]: kind for kind in ModuleKind}
    return tuple(Module(kind=kinds[letter], folder="") for letter in letters)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_old_and_new_releases_are_known(tmp_path: Path, name: str) -> None:
    write_json(tmp_path / "modules.json", [{"type": name, "path": "x"}])
    assert read_module_list(tmp_path / "modules.json") == (Module(kind=NAMES[name], folder="x"),)


@pytest.mark.parametrize("name", OTHERS)
def test_other_classes_are_refused_by_name(tmp_path: Path, name: str) -> None:
    write_json(tmp_path / "modules.json", [{"type": name, "path": ""}])
    with pytest.raises(UsageError) as caught:
        read_module_list(tmp_path / "modules.json")
    assert name.rpartition(".")[2] in str(caught.value)
    assert "expected one of Transformer, Pooling, Dense" in str(caught.value)


@pytest.mark.parametrize(
    ("model_class", "good", "bad"),
    [
        ("SentenceTransformer", ("TP", "TPDDN"), ("", "T", "PT", "TPND", "TD", "TS", "TPNN")),
        ("SparseEncoder", ("TS",), ("T", "TP", "TSN", "ST")),
        ("CrossEncoder", ("T", "TL"), ("", "TLL", "TPD", "L")),
        ("MultiVectorEncoder", ("T", "TD", "TDDMN", "TDNM", "TMN"), ("TP", "TND", "TMM", "D")),
        ("ColBERT", ("TD", "TDD"), ("TPD",)),
    ],
)
def test_each_class_has_its_order(
    model_class: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    file = Path("modules.json")
    for letters in good:
        check_order(file, modules(letters), model_class)
    for letters in bad:
        with pytest.raises(UsageError, match=r"modules\.json: expected Transformer"):
            check_order(file, modules(letters), model_class)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("TP", "SentenceTransformer"),
        ("TS", "SparseEncoder"),
        ("TL", "CrossEncoder"),
        ("TDMN", "MultiVectorEncoder"),
    ],
)
def test_the_class_follows_from_the_modules_where_none_is_stated(
    letters: str, expected: str
) -> None:
    assert class_of(modules(letters)) == expected


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("pooling_strategy", "sum", "does not sum over tokens"),
        ("pooling_strategy", 1, "expected a text"),
        ("activation_function", "gelu", "expected one of relu, log1p_relu"),
    ],
)
def test_other_sparse_poolings_are_refused(
    tmp_path: Path, key: str, value: object, sentence: str
) -> None:
    make_splade_checkpoint("bert", tmp_path)
    set_json_key(tmp_path / "1_SpladePooling" / "config.json", key, value)
    with pytest.raises(UsageError, match=sentence):
        read_hub_config(tmp_path)


def test_the_logarithm_may_be_doubled(tmp_path: Path) -> None:
    make_splade_checkpoint("bert", tmp_path)
    splade = read_hub_config(tmp_path).splade
    assert splade is not None
    assert not splade.is_log_doubled
    config_file = tmp_path / "1_SpladePooling" / "config.json"
    set_json_key(config_file, "activation_function", "log1p_relu")
    splade = read_hub_config(tmp_path).splade
    assert splade is not None
    assert splade.is_log_doubled


def test_an_unknown_class_is_refused(tmp_path: Path) -> None:
    make_splade_checkpoint("bert", tmp_path)
    config_file = tmp_path / "config_sentence_transformers.json"
    set_json_key(config_file, "model_type", "OtherEncoder")
    with pytest.raises(UsageError, match="model_type: expected one of SentenceTransformer"):
        read_hub_config(tmp_path)
