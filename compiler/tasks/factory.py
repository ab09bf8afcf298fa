"""Chooses the task of a checkpoint. Loads nothing."""

from dataclasses import replace

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.compiler.reference import ModelSource
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.tasks.classification import ClassificationTask
from infinity_v3.compiler.tasks.embedding import EmbeddingTask
from infinity_v3.compiler.tasks.late_interaction import LateInteractionTask
from infinity_v3.compiler.tasks.laya import LayaTask
from infinity_v3.compiler.tasks.projection import find_matrix
from infinity_v3.compiler.tasks.sparse import SparseTask
from infinity_v3.compiler.tasks.task import Task
from infinity_v3.compiler.tasks.token_classification import TokenClassificationTask
from infinity_v3.compiler.tasks.yes_no import YesNoTask
from infinity_v3.compiler.tokenizer import open_tokenizer, refuse_padding_at_end
from infinity_v3.model_specs.classifier_head import activation_warnings, resolve_classifier_head
from infinity_v3.model_specs.embedding_head import resolve_embedding_head
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.kind import CAUSAL_LM_HEAD, head_of
from infinity_v3.model_specs.late_interaction import resolve_late_interaction
from infinity_v3.model_specs.laya_config import LayaConfig
from infinity_v3.model_specs.pair_template import chat_pair_template, prompt_warnings
from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec
from infinity_v3.model_specs.yes_no_head import NO_OPTION, YES_OPTION, resolve_yes_no_head


def make_task(
    config: HubConfig,
    spec: ModelSpec,
    kind: Kind,
    request: CompileRequest,
    num_labels: int | None,
) -> Task:
    """The task of a checkpoint of that kind.

    Raises:
        UsageError: the head cannot be compiled as the checkpoint or the user asks.
    """
    if config.decision is not None:
        return _laya(config, config.decision, request)
    source = ModelSource(
        path=config.encoder_path,
        num_labels=num_labels,
        sees_both_ways=spec.is_causal
        and not spec.reads_direction
        and config.model.is_bidirectional,
    )
    is_yes_no = kind is Kind.RERANKER and head_of(config, spec) == CAUSAL_LM_HEAD
    ignored = _ignored_options(kind, request, is_yes_no=is_yes_no)
    if kind is Kind.EMBEDDING:
        return _embedding(config, spec, source, request.pooling, ignored)
    if kind is Kind.SPARSE:
        return _sparse(config, source, ignored)
    if kind is Kind.LATE_INTERACTION:
        return _late_interaction(config, spec, source, ignored)
    if is_yes_no:
        return _yes_no(config, source, request, ignored)
    return _classifier(config, spec, kind, source, ignored)


def _laya(config: HubConfig, stated: LayaConfig, request: CompileRequest) -> LayaTask:
    if request.pooling:
        raise UsageError(
            f"--pooling: {config.path} is a decision checkpoint, which pools nothing; leave the "
            "option out"
        )
    ignored = _ignored_options(Kind.DECISION, request, is_yes_no=False)
    return LayaTask(
        path=config.path,
        encoder_path=config.encoder_path,
        config=stated,
        width=config.model.hidden_size,
        warnings=(*ignored, *stated.warnings),
    )


def _ignored_options(kind: Kind, request: CompileRequest, *, is_yes_no: bool) -> tuple[str, ...]:
    """Sentences for options that have no meaning for the task."""
    words = {YES_OPTION: request.yes_token, NO_OPTION: request.no_token}
    ignored = [] if is_yes_no else [option for option, word in words.items() if word is not None]
    is_pooled = kind is Kind.EMBEDDING or request.pooling == (PoolingMode.SPLADE,)
    if request.pooling and not is_pooled:
        ignored.append("--pooling")
    return tuple(
        f"{option}: has no meaning for this {kind.value.replace('_', ' ')} model; ignored"
        for option in ignored
    )


def _embedding(
    config: HubConfig,
    spec: ModelSpec,
    source: ModelSource,
    pooling: tuple[PoolingMode, ...],
    ignored: tuple[str, ...],
) -> EmbeddingTask:
    head = resolve_embedding_head(
        config,
        spec,
        pooling=pooling[0] if pooling else None,
        alternatives=pooling[1:],
    )
    head = replace(head, warnings=(*ignored, *head.warnings))
    return EmbeddingTask(source=source, head=head, similarity=config.similarity)


def _sparse(config: HubConfig, source: ModelSource, ignored: tuple[str, ...]) -> SparseTask:
    return SparseTask(
        source=source,
        vocab_size=config.model.vocab_size,
        is_log_doubled=config.splade is not None and config.splade.is_log_doubled,
        warnings=ignored,
    )


def _late_interaction(
    config: HubConfig, spec: ModelSpec, source: ModelSource, ignored: tuple[str, ...]
) -> LateInteractionTask:
    head = resolve_late_interaction(config, spec)
    width = config.model.hidden_size
    matrix = find_matrix(config.path, width, head.dimensions) if head.is_stanford else None
    return LateInteractionTask(
        source=source,
        head=head,
        matrix=matrix,
        dimensions=matrix.out_features if matrix else head.dimensions or width,
        warnings=ignored,
    )


def _yes_no(
    config: HubConfig, source: ModelSource, request: CompileRequest, ignored: tuple[str, ...]
) -> YesNoTask:
    head = resolve_yes_no_head(config, yes=request.yes_token, no=request.no_token)
    warnings = (
        *ignored,
        *head.warnings,
        *activation_warnings(config),
        *prompt_warnings(config, head.pair_template),
    )
    return YesNoTask(source=source, head=replace(head, warnings=warnings))


def _classifier(
    config: HubConfig, spec: ModelSpec, kind: Kind, source: ModelSource, ignored: tuple[str, ...]
) -> Task:
    head = resolve_classifier_head(config, spec, kind, source.num_labels)
    warnings = (*ignored, *head.warnings)
    if kind is Kind.TOKEN_CLASSIFIER:
        return TokenClassificationTask(source=source, head=head, warnings=warnings)
    template = chat_pair_template(config)
    if head.pooling is ClassifierPooling.LAST_TOKEN and template is None:
        file = config.tokenizer.tokenizer
        refuse_padding_at_end(open_tokenizer(file), file, config.model.pad_token_id)
    return ClassificationTask(
        source=source,
        head=head,
        pair_template=template,
        warnings=(*warnings, *prompt_warnings(config, template)),
    )
