"""Results as the service gives them. Arrays are float32, C-contiguous and owned by the receiver."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from infinity_v3.runtime.decisions.answers import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTiming:
    """Mean seconds per item."""

    tokenization_s: float
    queue_s: float
    inference_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What every result says beside its numbers.

    Attributes:
        item_tokens: tokens of each item as the model is fed them: prompt and special tokens
            included, after truncation.
    """

    item_tokens: tuple[int, ...]
    timing: RequestTiming

    @property
    def num_tokens(self) -> int:
        """Tokens of all items together."""
        return sum(self.item_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult(TaskResult):
    """One row per item, in request order: (D,) for vectors, (S, D) for token matrices."""

    rows: tuple[NDArray[np.float32], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseVector:
    """The non-zero entries of a vector over the vocabulary, indices ascending, values positive."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseResult(TaskResult):
    """One sparse vector per item, in request order."""

    vectors: tuple[SparseVector, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityResult(TaskResult):
    """Cosine of the source and each sentence, in request order."""

    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreResult(TaskResult):
    """Score of each pair, in request order; `item_tokens` are those of what the model read."""

    scores: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult(TaskResult):
    """Relevance of each document.

    Attributes:
        scores: in request order, float64.
        order: positions of the documents, best first by logit, ties by lower position.
    """

    scores: tuple[float, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelScores:
    """Scores of one item.

    Attributes:
        scores: by class id, float64.
        order: class ids, best first by logit, ties by lower id.
    """

    scores: tuple[float, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyResult(TaskResult):
    """Scores of every label per item, in request order; the names of labels are in ModelInfo."""

    items: tuple[LabelScores, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideResult(TaskResult):
    """Answers in the order of the questions; `num_input_tokens` as the protocol counts them."""

    answers: tuple[Answer, ...]
    num_input_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntity:
    """A token or a group of tokens with its label.

    Attributes:
        token: the token as the vocabulary spells it; of a group, its slice of the text.
        token_id: 0 for a group.
        start, end: characters of the text, end excluded.
        results: scores by label: the best one, or all of them where logits were asked for.
    """

    token: str
    token_id: int
    start: int
    end: int
    results: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyTokensResult(TaskResult):
    """Entities of each text, in request order."""

    entities: tuple[tuple[TokenEntity, ...], ...]
