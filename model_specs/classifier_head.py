"""How a classification head becomes scores and labels. Computes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, ScoreActivation
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.json_file import shown
from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
_PROBLEM_TYPES = (None, REGRESSION, "single_label_classification", MULTI_LABEL)
_HEAD_WEIGHTS = ("classifier.weight", "classifier.out_proj.weight", "score.weight")
_POOLINGS = {
    "cls": ClassifierPooling.CLS,
    "bos": ClassifierPooling.CLS,
    "mean": ClassifierPooling.MEAN,
    "avg": ClassifierPooling.MEAN,
    "last": ClassifierPooling.LAST_TOKEN,
    "late": ClassifierPooling.LATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierHead:
    """The head of `*ForSequenceClassification` or `*ForTokenClassification`.

    Attributes:
        labels: names in the order of the logits.
        problem_type: as config.json states it.
        activation: how logits become scores.
        pooling: what the head reads; never CONFIGURED. Of no meaning for token classifiers.
        temperature: logits are divided by it.
        warnings: sentences for the user, in order.
    """

    labels: tuple[str, ...]
    problem_type: str | None
    activation: ScoreActivation
    pooling: ClassifierPooling
    temperature: float = 1.0
    warnings: tuple[str, ...] = ()


def stored_label_count(shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Rows of the classification head among a checkpoint's tensors, None where there is none.

    Args:
        shapes: shape of every tensor by name.
    """
    for name, shape in shapes.items():
        if name in _HEAD_WEIGHTS and len(shape) == 2:
            return shape[0]
    return None


def resolve_classifier_head(
    config: HubConfig, spec: ModelSpec, kind: Kind, num_labels: int | None
) -> ClassifierHead:
    """Resolve labels, activation and what the head reads.

    Args:
        config: the checkpoint.
        spec: its family.
        kind: RERANKER, CLASSIFIER or TOKEN_CLASSIFIER.
        num_labels: rows of the stored head; None = not found.

    Raises:
        UsageError: config.json contradicts the stored head, or asks for an unknown pooling or
            problem type.
    """
    labels = _labels(config, num_labels)
    problem_type = config.model.problem_type
    if problem_type not in _PROBLEM_TYPES:
        known = ", ".join(name for name in _PROBLEM_TYPES if name)
        raise UsageError(
            f"{config.model.file}: problem_type: expected one of {known}, found "
            f"{shown(problem_type)}"
        )
    return ClassifierHead(
        labels=labels,
        problem_type=problem_type,
        activation=_activation(kind, labels, problem_type),
        pooling=_pooling(config, spec),
        temperature=config.model.temperature if _is_published_both_ways(config) else 1.0,
        warnings=(
            activation_warnings(config)
            if kind is Kind.RERANKER
            else _regression_warnings(config, labels)
        ),
    )


def activation_warnings(config: HubConfig) -> tuple[str, ...]:
    """Say so where the checkpoint scores by another function than a sigmoid."""
    stated = config.score_activation
    if stated is None or stated.rpartition(".")[2] == "Sigmoid":
        return ()
    return (
        f"{config.path}: scores are the sigmoid of the logit, the checkpoint states "
        f"{shown(stated.rpartition('.')[2])}; a request with raw_scores gets the logit",
    )


def _regression_warnings(config: HubConfig, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Say so where the numbers that a regression was trained to give are the logits."""
    if config.model.problem_type != REGRESSION:
        return ()
    function = "sigmoid of the logit" if len(labels) == 1 else "softmax of the logits"
    return (
        f"{config.model.file}: problem_type is regression, and scores are the {function}; a "
        "request with raw_scores gets the number that the model was trained to give",
    )


def _labels(config: HubConfig, num_labels: int | None) -> tuple[str, ...]:
    stated = config.model.labels
    if not stated:
        if num_labels is None:
            raise UsageError(
                f"{config.path}: expected a classification head ({', '.join(_HEAD_WEIGHTS)}) or "
                "id2label in config.json, found neither; use a checkpoint that was trained to "
                "classify"
            )
        return tuple(f"LABEL_{index}" for index in range(num_labels))
    if num_labels is not None and num_labels != len(stated):
        raise UsageError(
            f"{config.model.file}: id2label: expected {num_labels} labels, as the classification "
            f"head has rows, found {len(stated)}; both must come from one checkpoint"
        )
    return stated


def _activation(kind: Kind, labels: tuple[str, ...], problem_type: str | None) -> ScoreActivation:
    if kind is Kind.TOKEN_CLASSIFIER:
        return ScoreActivation.SOFTMAX
    if problem_type == MULTI_LABEL or len(labels) == 1:
        return ScoreActivation.SIGMOID
    return ScoreActivation.SOFTMAX


def _pooling(config: HubConfig, spec: ModelSpec) -> ClassifierPooling:
    is_fixed = spec.classifier_pooling is not ClassifierPooling.CONFIGURED
    if is_fixed and not _is_published_both_ways(config):
        return spec.classifier_pooling
    stated = config.model.classifier_pooling or ("avg" if is_fixed else "cls")
    if stated not in _POOLINGS:
        raise UsageError(
            f"{config.model.file}: classifier_pooling: expected one of {', '.join(_POOLINGS)}, "
            f"found {shown(stated)}"
        )
    return _POOLINGS[stated]


def _is_published_both_ways(config: HubConfig) -> bool:
    """Whether it is a decoder published as an encoder, with a head unlike that of its family."""
    return config.model.model_type.endswith("_bidirec")
