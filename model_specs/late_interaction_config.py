"""What a late-interaction checkpoint says of queries and documents, in its three layouts.

Owns the files and keys of sentence-transformers, PyLate and Stanford's ColBERT. Knows no tokens:
`late_interaction.py` looks them up.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.dense_config import TOKEN_VECTORS
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_object
from infinity_v3.model_specs.markers import DOCUMENT, QUERY
from infinity_v3.model_specs.prompts import PYLATE_TYPE

METADATA = "artifact.metadata"
_MAX_TOKENS = 10**9
_USUAL_QUERY_LENGTH = 32
_STANFORD_MARKERS = {QUERY: "[unused0]", DOCUMENT: "[unused1]"}
_PUNCTUATION = tuple(string.punctuation)
_FIXED, _MINIMAL = "fixed", "min"
# Keys that only PyLate writes beside the class name.
_PYLATE_KEYS = (
    "query_length",
    "document_length",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "attend_to_mask_tokens",
    "query_prefix",
    "document_prefix",
    "skiplist_words",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryExpansion:
    """Queries are filled up with a token.

    Attributes:
        length: up to how many tokens.
        attends: the other tokens see the filled-up ones.
        token: spelling; None = the mask token of the tokenizer.
    """

    length: int
    attends: bool
    token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LateInteractionConfig:
    """The rules of a checkpoint, tokens by their spelling.

    Attributes:
        files: that were read, the one that states the rules first.
        prefixes: in front of a "query" or a "document"; a token where the vocabulary knows its
            spelling, else text.
        query_length, document_length: tokens at most; None = as any text.
        expansion: None = queries keep their length.
        skipped_words: tokens of documents that get no vector.
        normalize: vectors are divided by their length.
        is_stanford: the projection stands among the weights of the encoder.
        dimensions: width of a vector that the file states.
    """

    files: tuple[Path, ...]
    prefixes: Mapping[str, str]
    query_length: int | None
    document_length: int | None
    expansion: QueryExpansion | None
    skipped_words: tuple[str, ...]
    normalize: bool
    is_stanford: bool = False
    dimensions: int | None = None

    @property
    def longest_query(self) -> int | None:
        """Tokens of a query at most, None = as any text."""
        return self.query_length if self.expansion is None else self.expansion.length


def not_late_interaction(path: Path) -> str:
    """The sentence for a checkpoint without rules of late interaction."""
    return (
        f"{path}: expected a late-interaction checkpoint of sentence-transformers, PyLate or "
        "Stanford's ColBERT, whose projection of token vectors was trained, found none; "
        "use such a checkpoint"
    )


def read_stanford(folder: Path) -> LateInteractionConfig:
    """Read artifact.metadata, whose absence means ColBERT's usual values.

    Raises:
        UsageError: a key has a wrong type, or asks for another score than MaxSim over cosines.
        RunFailedError: the file can't be read.
    """
    file = folder / METADATA
    is_there = is_present(file)
    metadata = read_object(file) if is_there else JsonObject(file=file, values={})
    _refuse_other_scores(metadata)
    markers = {
        QUERY: metadata.text("query_token_id") or _STANFORD_MARKERS[QUERY],
        DOCUMENT: metadata.text("doc_token_id") or _STANFORD_MARKERS[DOCUMENT],
    }
    masks_punctuation = metadata.flag("mask_punctuation", default=True)
    return LateInteractionConfig(
        files=(file,) if is_there else (folder / "config.json",),
        # A space stands between the marker and the text.
        prefixes={side: f"{marker} " for side, marker in markers.items()},
        query_length=None,
        document_length=_length(metadata, "doc_maxlen"),
        expansion=QueryExpansion(
            length=_length(metadata, "query_maxlen") or _USUAL_QUERY_LENGTH,
            attends=metadata.flag("attend_to_mask_tokens", default=False),
            token=None,
        ),
        skipped_words=_PUNCTUATION if masks_punctuation else (),
        normalize=True,
        is_stanford=True,
        dimensions=_length(metadata, "dim"),
    )


def read_library_layout(
    usage: Path, sentence: Path | None, *, mask: Path | None, normalize: bool, model_class: str
) -> LateInteractionConfig:
    """Read what sentence-transformers or PyLate stored.

    Args:
        usage: config_sentence_transformers.json, may be absent.
        sentence: sentence_*_config.json, if there is one.
        mask: config.json of the MultiVectorMask module, if there is one.
        normalize: a Normalize module over token vectors is there.
        model_class: what saved the checkpoint.

    Raises:
        UsageError: a key has a wrong type or asks for rules that can't be kept.
        RunFailedError: a file can't be read.
    """
    flat, own = _read_present(usage), _read_present(sentence)
    is_pylate = model_class == PYLATE_TYPE
    expansion = _read_expansion(own if _states_expansion(own) else flat, flat)
    query_length = _length(own, "query_length")
    if query_length is None and (expansion is None or _states_expansion(flat)):
        query_length = _length(flat, "query_length")
    document_length = _length(own, "document_length") or _length(flat, "document_length")
    if expansion is not None and mask is None and not is_pylate:
        raise UsageError(
            f"{usage.parent / 'modules.json'}: expected a MultiVectorMask module, without which "
            "expanded queries get no vectors, found none"
        )
    return LateInteractionConfig(
        files=tuple(file for file in (usage, sentence, mask) if file and is_present(file)),
        prefixes={
            side: flat.text(f"{side}_prefix") or ""
            for side in (QUERY, DOCUMENT)
            if f"{side}_prefix" in flat.values
        },
        query_length=query_length,
        document_length=document_length,
        expansion=expansion,
        skipped_words=_read_mask(mask) if mask else _skipped_by_pylate(flat, is_pylate),
        normalize=normalize or is_pylate,
    )


def refuse_other_vectors(normalize: JsonObject) -> None:
    """Refuse a Normalize module that works on something else than token vectors.

    Raises:
        UsageError: naming the key.
    """
    if normalize.text("module_input_name") != TOKEN_VECTORS:
        normalize.refuse("module_input_name", f'"{TOKEN_VECTORS}"')
    if normalize.text("module_output_name") not in (None, TOKEN_VECTORS):
        normalize.refuse("module_output_name", f'"{TOKEN_VECTORS}"')


def _read_present(file: Path | None) -> JsonObject:
    if file is None or not is_present(file):
        return JsonObject(file=file or Path(), values={})
    return read_object(file)


def _length(config: JsonObject, key: str) -> int | None:
    return config.integer(key, minimum=1, maximum=_MAX_TOKENS)


def _states_expansion(config: JsonObject) -> bool:
    return "query_expansion" in config.values


def _read_expansion(stated: JsonObject, flat: JsonObject) -> QueryExpansion | None:
    if not _states_expansion(stated):
        return _read_flat_expansion(flat)
    expansion = stated.child("query_expansion")
    if expansion is None:
        return None
    length = _length(expansion, "length")
    if length is None:
        expansion.refuse("length", "the number of tokens that queries are filled up to")
    strategy = expansion.text("strategy")
    # A minimum that is the maximum as well is fixed.
    is_fixed = strategy == _FIXED or (
        strategy == _MINIMAL and (_length(stated, "query_length") or length + 1) <= length
    )
    if not is_fixed:
        expansion.refuse("strategy", f'"{_FIXED}" (this release fills queries to one length)')
    return QueryExpansion(
        length=length,
        attends=expansion.flag("attend", default=False),
        token=expansion.text("token"),
    )


def _read_flat_expansion(flat: JsonObject) -> QueryExpansion | None:
    """PyLate's keys; queries are expanded unless they say otherwise."""
    has_keys = any(key in flat.values for key in _PYLATE_KEYS)
    if not has_keys or not flat.flag("do_query_expansion", default=True):
        return None
    is_attending = flat.has("attend_to_expansion_tokens")
    key = "attend_to_expansion_tokens" if is_attending else "attend_to_mask_tokens"
    return QueryExpansion(
        length=_length(flat, "query_length") or _USUAL_QUERY_LENGTH,
        attends=flat.flag(key, default=False),
        token=None,
    )


def _skipped_by_pylate(flat: JsonObject, is_pylate: bool) -> tuple[str, ...]:
    if not is_pylate:
        return ()
    return flat.texts("skiplist_words") if flat.has("skiplist_words") else _PUNCTUATION


def _read_mask(file: Path) -> tuple[str, ...]:
    mask = read_object(file)
    if mask.values.get("keep_only_token_ids"):
        mask.refuse("keep_only_token_ids", "nothing (this release keeps all tokens of a document)")
    words = mask.texts("skiplist_words")
    stated = mask.values.get("skiplist_tasks")
    if stated is None or isinstance(stated, str):
        sides: tuple[str, ...] = (stated or DOCUMENT,)
    else:
        sides = mask.texts("skiplist_tasks")
    if words and QUERY in sides:
        mask.refuse("skiplist_tasks", f'"{DOCUMENT}" (this release skips no tokens of a query)')
    return words if DOCUMENT in sides else ()


def _refuse_other_scores(metadata: JsonObject) -> None:
    if metadata.text("similarity") not in (None, "cosine"):
        metadata.refuse("similarity", '"cosine"')
    if metadata.text("interaction") not in (None, "colbert"):
        metadata.refuse("interaction", '"colbert"')
