"""How queries and documents become token vectors: the rules of a checkpoint with its tokens' ids.

Computes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import LateInteraction
from infinity_v3.model_specs.dense_config import DenseLayer
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.json_file import shown
from infinity_v3.model_specs.late_interaction_config import (
    LateInteractionConfig,
    QueryExpansion,
    not_late_interaction,
)
from infinity_v3.model_specs.length_limit import side_limits
from infinity_v3.model_specs.markers import DOCUMENT, QUERY, split_marker
from infinity_v3.model_specs.spec import ModelSpec
from infinity_v3.model_specs.tokenizer_files import TokenizerFiles
from infinity_v3.model_specs.vocabulary import read_vocabulary

_FILLERS = ("mask_token", "eos_token")
_USUAL_MASKS = ("[MASK]", "<mask>")


@dataclass(frozen=True, slots=True, kw_only=True)
class LateInteractionHead:
    """The resolved head.

    Attributes:
        rules: for post-processing.
        dense: applied to every token's vector, in order; empty where `is_stanford`.
        is_stanford: the projection stands among the weights of the encoder.
        normalize: vectors are divided by their length.
        dimensions: width of a vector; None = only the weights say it.
        similarity: how vectors are compared.
    """

    rules: LateInteraction
    dense: tuple[DenseLayer, ...]
    is_stanford: bool
    normalize: bool
    dimensions: int | None
    similarity: str


def resolve_late_interaction(config: HubConfig, spec: ModelSpec) -> LateInteractionHead:
    """Resolve the rules of a late-interaction checkpoint.

    Raises:
        UsageError: it is none, widths don't fit together, or its tokens are not in the vocabulary.
    """
    late = config.late_interaction
    if late is None:
        raise UsageError(not_late_interaction(config.path))
    vocabulary = read_vocabulary(config.tokenizer.tokenizer)
    query_marker, document_marker = (
        split_marker(late.prefixes.get(side, ""), vocabulary)[0] for side in (QUERY, DOCUMENT)
    )
    query_limit, document_limit = side_limits(config, spec)
    expansion = late.expansion
    filler = None if expansion is None else _filler(config.tokenizer, expansion, vocabulary)
    _check_rows(config, (query_marker, document_marker, filler))
    _check_window(config, expansion, query_limit)
    return LateInteractionHead(
        rules=LateInteraction(
            query_prefix_id=query_marker,
            document_prefix_id=document_marker,
            query_length=query_limit,
            document_length=document_limit,
            query_expansion_id=filler,
            attends_to_expansion=expansion is not None and expansion.attends,
            skipped_ids=_skipped(late, vocabulary),
        ),
        dense=config.dense,
        is_stanford=late.is_stanford,
        normalize=late.normalize,
        dimensions=late.dimensions if late.is_stanford else _width(config),
        similarity=(config.similarity or "maxsim").lower(),
    )


def _filler(files: TokenizerFiles, expansion: QueryExpansion, vocabulary: Mapping[str, int]) -> int:
    if expansion.token is not None:
        candidates: tuple[str | None, ...] = (expansion.token,)
    else:
        mask, end = (files.special_tokens.get(role) for role in _FILLERS)
        candidates = (mask, *_USUAL_MASKS, end)
    for candidate in candidates:
        if candidate is not None and candidate in vocabulary:
            return vocabulary[candidate]
    wanted = "a mask token" if expansion.token is None else shown(expansion.token)
    raise UsageError(
        f"{files.tokenizer}: expected {wanted}, which queries are filled up with, in the "
        "vocabulary, found none; take all files from one checkpoint"
    )


def _check_rows(config: HubConfig, ids: tuple[int | None, ...]) -> None:
    rows = config.model.vocab_size
    for number in ids:
        if number is not None and not 0 <= number < rows:
            raise UsageError(
                f"{config.tokenizer.tokenizer}: expected ids below vocab_size {rows} for the "
                f"tokens that mark and fill up texts, found {number}; take all files from one "
                "checkpoint"
            )


def _check_window(config: HubConfig, expansion: QueryExpansion | None, query_limit: int) -> None:
    """Refuse fill-up tokens that see nothing: their vectors would mean nothing either."""
    window = config.model.window
    is_blind = expansion is not None and not expansion.attends and window is not None
    if is_blind and window is not None and query_limit > window // 2:
        raise UsageError(
            f"{config.model.file}: expected an attention window of at least {2 * query_limit} "
            f"tokens for queries that are filled up to {query_limit}, found {window}: the last "
            "ones would see none of the query; shorten the queries (query_length)"
        )


def _skipped(late: LateInteractionConfig, vocabulary: Mapping[str, int]) -> tuple[int, ...]:
    """Words that are no token of their own cannot be told from others: they stay."""
    return tuple(sorted({vocabulary[w] for w in late.skipped_words if w in vocabulary}))


def _width(config: HubConfig) -> int:
    width = config.model.hidden_size
    for layer in config.dense:
        if layer.in_features != width:
            raise UsageError(
                f"{layer.folder}/config.json: in_features: expected {width}, found "
                f"{layer.in_features}"
            )
        width = layer.out_features
    return width
