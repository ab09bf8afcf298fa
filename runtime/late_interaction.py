"""How late-interaction models read queries and documents: prefix, length, filling, skipped tokens.

Knows nothing of tokenizers or engines.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import LateInteraction
from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.truncation import Truncation

QUERY_PROMPT = "query"
SIDE_PROMPTS = (QUERY_PROMPT, "document")
"""Prompts that choose the rules of a side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The rules of queries, or those of documents.

    Attributes:
        prefix_id: put behind the first special token; None = nothing.
        max_tokens: texts are cut to it, prefix included; None = only by the model's own limit.
        filler_id: put behind the last token, up to `max_tokens`; None = nothing.
        attends_to_fillers: tokens see the fillers; else these only look.
        skipped_ids: tokens that get no vector.
    """

    prefix_id: int | None
    max_tokens: int | None
    filler_id: int | None = None
    attends_to_fillers: bool = True
    skipped_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, rules: LateInteraction, prompt_name: str | None) -> "Side":
        """Choose by the name of the prompt in force; whatever is no query is a document."""
        if prompt_name != QUERY_PROMPT:
            return cls(
                prefix_id=rules.document_prefix_id,
                max_tokens=rules.document_length,
                skipped_ids=rules.skipped_ids,
            )
        return cls(
            prefix_id=rules.query_prefix_id,
            max_tokens=rules.query_length,
            filler_id=rules.query_expansion_id,
            attends_to_fillers=rules.attends_to_expansion,
        )

    def limit(self, truncation: Truncation) -> Truncation:
        """Narrow what a request asks for to what the side takes, prefix included."""
        if self.max_tokens is None:
            return truncation
        return replace(truncation, max_tokens=min(truncation.max_tokens, self.max_tokens))

    def without_prefix(self, limit: Truncation) -> Truncation:
        """The limit for a text whose prefix is still to come."""
        if self.prefix_id is None:
            return limit
        return replace(limit, max_tokens=max(limit.max_tokens - 1, 1))

    def complete(self, text: EncodedText, place: int, limit: Truncation) -> EncodedText:
        """Put the prefix in at a place and fill up behind the last token."""
        ids, types = text.input_ids, text.token_type_ids
        if self.prefix_id is not None:
            ids = np.insert(ids, place, self.prefix_id)[: limit.max_tokens]
            types = None if types is None else np.insert(types, place, 0)[: limit.max_tokens]
        if self.filler_id is None or self.max_tokens is None or len(ids) >= limit.max_tokens:
            return EncodedText(input_ids=ids, token_type_ids=types)
        return EncodedText(
            input_ids=_fill(ids, limit.max_tokens, self.filler_id),
            token_type_ids=None if types is None else _fill(types, limit.max_tokens, 0),
            num_keys=None if self.attends_to_fillers else len(ids),
        )

    def pick(self, text: EncodedText, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        """Keep the vectors of the tokens that get one: (S, D) to (N, D)."""
        if not self.skipped_ids:
            return matrix
        picked: NDArray[np.float32] = matrix[np.isin(text.input_ids, self.skipped_ids, invert=True)]
        return picked


def _fill(values: NDArray[np.int64], count: int, value: int) -> NDArray[np.int64]:
    filled = np.full(count, value, dtype=np.int64)
    filled[: len(values)] = values
    return filled
