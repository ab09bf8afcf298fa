"""The seam between decisions and a checkpoint's protocol.

A protocol makes sequences of questions and knows where in their outputs the answers stand. Knows
nothing of queues or HTTP.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.decision import Decision, DecisionProtocol, QuestionType
from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.decisions.question import DecideRequest
from infinity_v3.runtime.truncation import Truncation
from infinity_v3.runtime.wanted import IsWanted

Logits = NDArray[np.float32]
Probabilities = NDArray[np.float64]


class PieceTokenizer(Protocol):
    """Makes ids of texts without special tokens around them.

    Obligations: may be called on any thread.
    """

    def encode_pieces(
        self, texts: list[str], truncation: Truncation, *, is_wanted: IsWanted
    ) -> list[list[int]]:
        """Ids of each text, whole, or at least one more than the limit where it is longer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPlace:
    """Where the answer to a question stands, and what makes probabilities of it.

    Attributes:
        sequence: position among the sequences of the request.
        first_row: of the rows that the sequence gets.
        num_options: logits that count.
        is_by_row: one logit in each of as many rows; else the first ones of one row.
        is_truncated: tokens of the state were left out.
    """

    sequence: int
    first_row: int
    num_options: int
    temperature: float
    is_by_row: bool
    is_truncated: bool = False

    def read(self, rows: Logits) -> Logits:
        """The logits (num_options,) among the rows (K, C) of the sequence."""
        if self.is_by_row:
            return rows[self.first_row : self.first_row + self.num_options, 0]
        return rows[self.first_row, : self.num_options]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDecisions:
    """Sequences of a request, and a place for each of its questions, in their order."""

    sequences: tuple[EncodedText, ...]
    places: tuple[AnswerPlace, ...]
    num_input_tokens: int
    num_output_tokens: int


class DecisionFormat(Protocol):
    """One protocol of one model.

    Obligations: may be called on any thread.
    """

    def encode(self, request: DecideRequest, *, is_wanted: IsWanted) -> EncodedDecisions:
        """Make sequences of a request.

        Raises:
            InferenceError: VALIDATION or TOKENIZER, with the question's position.
        """
        ...

    def native_confidence(self, kind: QuestionType, p: Probabilities) -> float | None:
        """The confidence that the protocol itself reports; None = the common one."""
        ...


def open_format(
    decision: Decision, tokenizer: PieceTokenizer, *, max_tokens: int, is_truncating: bool
) -> DecisionFormat:
    """The protocol that an artifact was compiled for.

    Args:
        decision: of the manifest.
        tokenizer: of the artifact.
        max_tokens: longest sequence that the server takes.
        is_truncating: states may be cut.
    """
    assert decision.protocol is DecisionProtocol.LAYA, "the reader lets no other pass; a bug"
    from infinity_v3.runtime.decisions.laya import LayaFormat

    return LayaFormat(decision, tokenizer, max_tokens=max_tokens, is_truncating=is_truncating)
