"""The kind of a checkpoint follows from its files; the user decides where they say nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.kind import resolve_kind
from infinity_v3.model_specs.registry import match
from tiny_checkpoints import make_tiny_checkpoint, remove_json_key, set_json_key, write_json
from tiny_families import CAUSAL_LM, MASKED_LM, SEQUENCE, TOKEN
from tiny_retrievers import (
    make_colbert_checkpoint,
    make_reranker_checkpoint,
    make_splade_checkpoint,
    make_yes_no_reranker_checkpoint,
)

Maker = Callable[[Path], Path]


def bare(family: str, head: str | None = None, labels: int = 3) -> Maker:
    def make(path: Path) -> Path:
        return make_tiny_checkpoint(family, path, head=head, pooling=None, num_labels=labels)

    return make


def cross_encoder(path: Path) -> Path:
    """As sentence-transformers 6 saves one: a list of one module."""
    make_reranker_checkpoint("bert", path)
    module = "sentence_transformers.base.modules.transformer.Transformer"
    write_json(path / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": module}])
    task = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
    write_json(path / "sentence_bert_config.json", task)
    write_json(path / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    return path


STATED: dict[str, tuple[Maker, Kind]] = {
    "embedding": (lambda path: make_tiny_checkpoint("bert", path), Kind.EMBEDDING),
    "bare": (bare("bert"), Kind.EMBEDDING),
    "pylate": (lambda path: make_colbert_checkpoint("bert", path), Kind.LATE_INTERACTION),
    "stanford": (
        lambda path: make_colbert_checkpoint("bert", path, layout="stanford"),
        Kind.LATE_INTERACTION,
    ),
    "multi-vector": (
        lambda path: make_colbert_checkpoint("bert", path, layout="sentence-transformers"),
        Kind.LATE_INTERACTION,
    ),
    "splade": (lambda path: make_splade_checkpoint("bert", path), Kind.SPARSE),
    "reranker": (lambda path: make_reranker_checkpoint("bert", path), Kind.RERANKER),
    "cross-encoder": (cross_encoder, Kind.RERANKER),
    "logit-score": (
        lambda path: make_yes_no_reranker_checkpoint("qwen3", path, modules=True),
        Kind.RERANKER,
    ),
    "classifier": (bare("bert", SEQUENCE), Kind.CLASSIFIER),
    "token-classifier": (bare("bert", TOKEN), Kind.TOKEN_CLASSIFIER),
}


def kind_of(path: Path, asked: Kind | None = None, num_labels: int | None = None) -> Kind:
    config = read_hub_config(path)
    return resolve_kind(config, match(config), asked, num_labels)


@pytest.mark.parametrize("case", STATED)
def test_each_layout_says_what_it_is(tmp_path: Path, case: str) -> None:
    make, kind = STATED[case]
    path = make(tmp_path)
    assert kind_of(path) is kind
    assert kind_of(path, kind) is kind


def test_the_class_is_not_needed_where_modules_tell(tmp_path: Path) -> None:
    path = make_splade_checkpoint("bert", tmp_path)
    remove_json_key(path / "config_sentence_transformers.json", "model_type")
    assert kind_of(path) is Kind.SPARSE


def test_rows_of_the_head_decide_where_labels_are_not_named(tmp_path: Path) -> None:
    path = make_reranker_checkpoint("bert", tmp_path)
    for key in ("id2label", "label2id"):
        if key in (path / "config.json").read_text(encoding="utf-8"):
            remove_json_key(path / "config.json", key)
    assert kind_of(path, num_labels=1) is Kind.RERANKER
    assert kind_of(path, num_labels=4) is Kind.CLASSIFIER


SILENT: dict[str, tuple[Maker, str]] = {
    "causal": (bare("qwen3", CAUSAL_LM), "give --task embedding, or --task reranker"),
    "decoder": (bare("llama"), "is generative and does not say what to make of it"),
    "masked": (bare("bert", MASKED_LM), "compile its encoder with --task embedding"),
}


@pytest.mark.parametrize("case", SILENT)
def test_the_user_must_say_what_a_silent_checkpoint_is_for(tmp_path: Path, case: str) -> None:
    make, sentence = SILENT[case]
    path = make(tmp_path)
    with pytest.raises(UsageError) as caught:
        kind_of(path)
    assert sentence in str(caught.value)
    assert kind_of(path, Kind.EMBEDDING) is Kind.EMBEDDING


WRONG: dict[str, tuple[Maker, Kind, str]] = {
    "reranker of three labels": (bare("bert", SEQUENCE), Kind.RERANKER, "expected one label"),
    "sparse without its head": (bare("bert"), Kind.SPARSE, "needs a masked language model"),
    "tokens of a sequence classifier": (
        bare("bert", SEQUENCE),
        Kind.TOKEN_CLASSIFIER,
        "can't be compiled as token_classifier, which needs a token classifier",
    ),
    "classes of a token classifier": (
        bare("bert", TOKEN),
        Kind.CLASSIFIER,
        "needs a sequence classifier",
    ),
    "late interaction without a projection": (
        bare("bert"),
        Kind.LATE_INTERACTION,
        "expected a late-interaction checkpoint",
    ),
    "embedding of a late-interaction model": (
        lambda path: make_colbert_checkpoint("bert", path),
        Kind.EMBEDDING,
        "can't be compiled as anything else",
    ),
    "reranker of a bare model": (bare("bert"), Kind.RERANKER, "needs a sequence classifier"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_task_that_the_head_is_not_for_is_refused(tmp_path: Path, case: str) -> None:
    make, asked, sentence = WRONG[case]
    path = make(tmp_path)
    with pytest.raises(UsageError) as caught:
        kind_of(path, asked)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cross_encoder_without_a_head_is_refused(tmp_path: Path) -> None:
    path = cross_encoder(tmp_path)
    set_json_key(path / "config.json", "architectures", ["BertModel"])
    with pytest.raises(UsageError, match="can't be compiled as reranker"):
        kind_of(path)


def test_logit_score_needs_a_language_model(tmp_path: Path) -> None:
    path = make_yes_no_reranker_checkpoint("qwen3", tmp_path, modules=True)
    set_json_key(path / "config.json", "architectures", ["Qwen3ForSequenceClassification"])
    set_json_key(path / "config.json", "id2label", {"0": "x"})
    with pytest.raises(UsageError, match="expected a causal language model, whose logits"):
        kind_of(path)
