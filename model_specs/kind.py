"""What a checkpoint is for: its kind, from its modules, its class, or the user. Reads no files."""

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.model_specs.hub_config import STANFORD_COLBERT, HubConfig
from infinity_v3.model_specs.json_file import shown
from infinity_v3.model_specs.late_interaction_config import not_late_interaction
from infinity_v3.model_specs.laya_config import LAYA_CONFIG
from infinity_v3.model_specs.prompts import (
    CROSS_ENCODER_TYPE,
    EMBEDDING_MODEL_TYPE,
    SPARSE_ENCODER_TYPE,
)
from infinity_v3.model_specs.spec import ModelSpec

SEQUENCE_HEAD = "ForSequenceClassification"
TOKEN_HEAD = "ForTokenClassification"
MASKED_LM_HEAD = "ForMaskedLM"
CAUSAL_LM_HEAD = "ForCausalLM"

# Heads that the encoder was trained with: leaving them off leaves the encoder.
_TRAINING_HEADS = (MASKED_LM_HEAD, "ForPreTraining", "ForNextSentencePrediction")
_BARE = "Model"
_EMBEDDING_HEADS = (_BARE, *_TRAINING_HEADS, CAUSAL_LM_HEAD)
_HEADS_BY_KIND = {
    Kind.EMBEDDING: _EMBEDDING_HEADS,
    Kind.LATE_INTERACTION: _EMBEDDING_HEADS,
    Kind.SPARSE: (MASKED_LM_HEAD,),
    Kind.RERANKER: (SEQUENCE_HEAD, CAUSAL_LM_HEAD),
    Kind.CLASSIFIER: (SEQUENCE_HEAD,),
    Kind.TOKEN_CLASSIFIER: (TOKEN_HEAD,),
    Kind.DECISION: (_BARE, *_TRAINING_HEADS),
}
_WANTED = {
    Kind.EMBEDDING: "a bare model, a masked or a causal language model",
    Kind.LATE_INTERACTION: "a bare model with a projection of its token vectors",
    Kind.SPARSE: "a masked language model",
    Kind.RERANKER: "a sequence classifier with one label, or a causal language model",
    Kind.CLASSIFIER: "a sequence classifier",
    Kind.TOKEN_CLASSIFIER: "a token classifier",
    Kind.DECISION: "the encoder of a decision model",
}


def resolve_kind(
    config: HubConfig, spec: ModelSpec, asked: Kind | None, num_labels: int | None
) -> Kind:
    """Decide what the artifact does.

    Args:
        config: the checkpoint.
        spec: its family.
        asked: `--task`; None = the checkpoint must say it itself.
        num_labels: rows of the stored classification head; None = there is none.

    Raises:
        UsageError: the checkpoint does not say, or has not the head that the task needs.
    """
    _refuse_other_family(config, spec)
    kind = asked or _stated_kind(config, spec, num_labels or len(config.model.labels))
    _check_head(config, spec, kind)
    if kind is Kind.RERANKER and head_of(config, spec).endswith(SEQUENCE_HEAD):
        _check_one_label(config, num_labels or len(config.model.labels))
    return kind


def head_of(config: HubConfig, spec: ModelSpec) -> str:
    """The class name without its family, e.g. "ForMaskedLM"; "Model" when none is stated."""
    return _head(config.model.architecture, spec) or _BARE


def _stated_kind(config: HubConfig, spec: ModelSpec, num_labels: int) -> Kind:
    if config.decision is not None:
        return Kind.DECISION
    if config.late_interaction is not None:
        return Kind.LATE_INTERACTION
    if config.model_class == SPARSE_ENCODER_TYPE:
        return Kind.SPARSE
    if config.logit_score is not None:
        return Kind.RERANKER
    head = head_of(config, spec)
    if head.endswith(SEQUENCE_HEAD):
        return Kind.RERANKER if num_labels == 1 else Kind.CLASSIFIER
    if head == TOKEN_HEAD and not (spec.family == "gte" and not config.model.labels):
        return Kind.TOKEN_CLASSIFIER
    if config.modules is not None and config.model_class == EMBEDDING_MODEL_TYPE:
        return Kind.EMBEDDING
    _refuse_silent(config, spec, head)
    return Kind.RERANKER if config.model_class == CROSS_ENCODER_TYPE else Kind.EMBEDDING


def _refuse_silent(config: HubConfig, spec: ModelSpec, head: str) -> None:
    model = config.model
    name = f"{model.file}: {shown(model.architecture or model.model_type)}"
    if head == CAUSAL_LM_HEAD or (spec.is_generative and head == _BARE):
        raise UsageError(
            f"{name} is generative and does not say what to make of it: give --task embedding, or "
            "--task reranker for a model that answers yes or no"
        )
    if head in _TRAINING_HEADS:
        raise UsageError(
            f"{name} is a pre-training checkpoint and does not say that it embeds; "
            "compile its encoder with --task embedding, or its vocabulary with --task sparse"
        )


def _refuse_other_family(config: HubConfig, spec: ModelSpec) -> None:
    architecture = config.model.architecture
    if architecture in (None, STANFORD_COLBERT) or _head(architecture, spec) is not None:
        return
    raise UsageError(
        f"{config.model.file}: architectures: {shown(architecture)} is no {spec.family} model; "
        f"expected a class such as {spec.architectures[0]}Model"
    )


def _head(architecture: str | None, spec: ModelSpec) -> str | None:
    prefix = next((p for p in spec.architectures if (architecture or "").startswith(p)), None)
    head = (architecture or "").removeprefix(prefix) if prefix else ""
    is_head = head.startswith(("For", "LMHead")) or head == _BARE
    return head if is_head else None


def _check_head(config: HubConfig, spec: ModelSpec, kind: Kind) -> None:
    heads = _HEADS_BY_KIND[kind]
    if kind is Kind.SPARSE and not spec.has_sparse_head:
        raise UsageError(
            f"{config.model.file}: the masked language model of {spec.family} can't be compiled as "
            "sparse; use a checkpoint of another family, such as bert or distilbert"
        )
    _check_late_interaction(config, kind)
    _check_decision(config, kind)
    head = head_of(config, spec)
    _check_logit_score(config, head, kind)
    is_encoder = kind is Kind.EMBEDDING and head == TOKEN_HEAD and spec.family == "gte"
    if head in heads or is_encoder or config.model.architecture == STANFORD_COLBERT:
        return
    raise UsageError(
        f"{config.model.file}: architectures: {shown(config.model.architecture)} can't be compiled "
        f"as {kind.value}, which needs {_WANTED[kind]}"
    )


def _check_late_interaction(config: HubConfig, kind: Kind) -> None:
    is_late = config.late_interaction is not None
    if kind is Kind.LATE_INTERACTION and not is_late:
        raise UsageError(f"--task {kind.value}: {not_late_interaction(config.path)}")
    if is_late and kind is not Kind.LATE_INTERACTION:
        raise UsageError(
            f"--task {kind.value}: {config.path} is a late-interaction checkpoint, which can't be "
            "compiled as anything else; leave the option out"
        )


def _check_decision(config: HubConfig, kind: Kind) -> None:
    is_decision = config.decision is not None
    if kind is Kind.DECISION and not is_decision:
        raise UsageError(
            f"--task {kind.value}: expected {LAYA_CONFIG} in {config.path}, found none; give a "
            "decision checkpoint"
        )
    if is_decision and kind is not Kind.DECISION:
        raise UsageError(
            f"--task {kind.value}: {config.path} is a decision checkpoint, which can't be compiled "
            "as anything else; leave the option out"
        )


def _check_logit_score(config: HubConfig, head: str, kind: Kind) -> None:
    if kind is Kind.RERANKER and config.logit_score is not None and head != CAUSAL_LM_HEAD:
        raise UsageError(
            f"{config.model.file}: architectures: expected a causal language model, whose logits "
            f"the LogitScore module reads, found {shown(config.model.architecture)}"
        )


def _check_one_label(config: HubConfig, num_labels: int) -> None:
    if num_labels > 1:
        raise UsageError(
            f"{config.model.file}: id2label: expected one label for a reranker, found "
            f"{num_labels}; compile it with --task classifier"
        )
