"""Labels, activation and pooling of classification heads, and what contradicts them."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, ScoreActivation
from infinity_v3.model_specs.classifier_head import (
    ClassifierHead,
    resolve_classifier_head,
    stored_label_count,
)
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.registry import match
from infinity_v3.model_specs.spec import ClassifierPooling
from tiny_checkpoints import IDENTITY, make_tiny_checkpoint, set_json_key, write_json
from tiny_families import SEQUENCE
from tiny_retrievers import make_reranker_checkpoint

SIGMOID = "torch.nn.modules.activation.Sigmoid"


def head_of(path: Path, kind: Kind, num_labels: int | None) -> ClassifierHead:
    config = read_hub_config(path)
    return resolve_classifier_head(config, match(config), kind, num_labels)


def classifier(path: Path, labels: tuple[str, ...], problem_type: str | None = None) -> Path:
    return make_tiny_checkpoint(
        "bert", path, head=SEQUENCE, pooling=None, labels=labels, problem_type=problem_type
    )


@pytest.mark.parametrize(
    ("labels", "problem_type", "kind", "activation"),
    [
        (("x",), None, Kind.RERANKER, ScoreActivation.SIGMOID),
        (("x",), "regression", Kind.CLASSIFIER, ScoreActivation.SIGMOID),
        (("x", "y"), None, Kind.CLASSIFIER, ScoreActivation.SOFTMAX),
        (("x", "y"), "multi_label_classification", Kind.CLASSIFIER, ScoreActivation.SIGMOID),
        (("x",), None, Kind.TOKEN_CLASSIFIER, ScoreActivation.SOFTMAX),
    ],
)
def test_labels_and_problem_type_decide_the_activation(
    tmp_path: Path,
    labels: tuple[str, ...],
    problem_type: str | None,
    kind: Kind,
    activation: ScoreActivation,
) -> None:
    head = head_of(classifier(tmp_path, labels, problem_type), kind, len(labels))
    assert (head.labels, head.activation) == (labels, activation)
    assert head.pooling is ClassifierPooling.CLS


@pytest.mark.parametrize(
    ("activation", "is_told"), [(IDENTITY, True), (SIGMOID, False), (None, False)]
)
def test_another_function_of_scores_is_told(
    tmp_path: Path, activation: str | None, is_told: bool
) -> None:
    make_reranker_checkpoint("bert", tmp_path, activation=activation)
    head = head_of(tmp_path, Kind.RERANKER, 1)
    assert head.activation is ScoreActivation.SIGMOID
    assert len(head.warnings) == is_told
    if is_told:
        assert 'the checkpoint states "Identity"' in head.warnings[0]
    assert head_of(tmp_path, Kind.CLASSIFIER, 1).warnings == ()


def test_the_function_of_scores_is_found_under_every_name(tmp_path: Path) -> None:
    make_reranker_checkpoint("bert", tmp_path, activation=None)
    assert read_hub_config(tmp_path).score_activation is None
    key = "sbert_ce_default_activation_function"
    set_json_key(tmp_path / "config.json", key, "torch.nn.modules.activation.Tanh")
    assert read_hub_config(tmp_path).score_activation == "torch.nn.modules.activation.Tanh"
    note = {"activation_fn": IDENTITY}
    set_json_key(tmp_path / "config.json", "sentence_transformers", note)
    assert read_hub_config(tmp_path).score_activation == IDENTITY
    usage = {"model_type": "CrossEncoder", "activation_fn": SIGMOID}
    write_json(tmp_path / "config_sentence_transformers.json", usage)
    assert read_hub_config(tmp_path).score_activation == SIGMOID


def test_labels_are_numbered_where_none_are_named(tmp_path: Path) -> None:
    make_tiny_checkpoint("bert", tmp_path, pooling=None)
    head = head_of(tmp_path, Kind.CLASSIFIER, 3)
    assert head.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_neither_labels_nor_a_head_is_refused(tmp_path: Path) -> None:
    make_tiny_checkpoint("bert", tmp_path, pooling=None)
    with pytest.raises(UsageError, match=r"expected a classification head .* found neither"):
        head_of(tmp_path, Kind.CLASSIFIER, None)


def test_a_head_of_another_size_than_its_labels_is_refused(tmp_path: Path) -> None:
    path = classifier(tmp_path, ("x", "y"))
    with pytest.raises(UsageError, match=r"id2label: expected 5 labels, .* found 2"):
        head_of(path, Kind.CLASSIFIER, 5)


def test_an_unknown_problem_type_is_refused(tmp_path: Path) -> None:
    path = classifier(tmp_path, ("x", "y"))
    set_json_key(path / "config.json", "problem_type", "ranking")
    with pytest.raises(UsageError, match=r'problem_type: expected one of .* found "ranking"'):
        head_of(path, Kind.CLASSIFIER, 2)


def test_an_unknown_pooling_is_refused(tmp_path: Path) -> None:
    make_tiny_checkpoint("modernbert", tmp_path, head=SEQUENCE, pooling=None)
    set_json_key(tmp_path / "config.json", "classifier_pooling", "median")
    with pytest.raises(UsageError, match=r'classifier_pooling: expected one of .* found "median"'):
        head_of(tmp_path, Kind.CLASSIFIER, 2)


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("classifier.weight", (3, 32), 3),
        ("classifier.out_proj.weight", (4, 32), 4),
        ("score.weight", (1, 32), 1),
        ("classifier.bias", (3,), None),
        ("linear.weight", (24, 32), None),
        ("score.weight", (7,), None),
    ],
)
def test_rows_of_the_stored_head_are_counted(
    name: str, shape: tuple[int, ...], count: int | None
) -> None:
    assert stored_label_count({"other.weight": (9, 9), name: shape}) == count
