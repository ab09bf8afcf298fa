"""Laya: a sequence per question, a mask token before each option, a logit at each mask.

Knows nothing of engines or queues.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from infinity_v3.artifacts.decision import LAYA_MIN_HEAD, Decision, QuestionType
from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.decisions.answers import entropy_confidence
from infinity_v3.runtime.decisions.protocol import (
    AnswerPlace,
    EncodedDecisions,
    PieceTokenizer,
    Probabilities,
)
from infinity_v3.runtime.decisions.question import AnswerOption, DecideRequest, Question
from infinity_v3.runtime.decisions.rendering import as_text, instructions_of, is_blank
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.requests import TruncationSide
from infinity_v3.runtime.truncation import Truncation
from infinity_v3.runtime.wanted import IsWanted, while_wanted

MIN_INSTRUCTION_TOKENS = 16
"""Options are shortened where they would leave fewer."""
LEAST_INSTRUCTION_TOKENS = 8
"""Which are kept even then."""
LEAST_OPTION_TOKENS = 4
_DEFAULT_TEXTS = ("no, the statement does not hold", "yes, the statement holds")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    """Tokens of a sequence, and of the half that holds the question."""

    max_len: int
    head_max_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Tokens of the state, as many as could be kept and one more where it is longer."""

    ids: list[int]
    keeps_end: bool

    def cut(self, room: int) -> list[int]:
        if self.keeps_end:
            return self.ids[max(0, len(self.ids) - room) :]
        return self.ids[:room]


class LayaFormat:
    """See decisions.protocol.DecisionFormat."""

    def __init__(
        self,
        decision: Decision,
        tokenizer: PieceTokenizer,
        *,
        max_tokens: int,
        is_truncating: bool,
    ) -> None:
        self._decision = decision
        self._tokenizer = tokenizer
        self._max_tokens = min(decision.limits.max_len, max_tokens)
        self._is_truncating = is_truncating

    def encode(self, request: DecideRequest, *, is_wanted: IsWanted) -> EncodedDecisions:
        budget = self._budget(request)
        state = self._encode_state(request, budget, is_wanted)
        sequences, places = [], []
        for position, question in enumerate(while_wanted(request.questions, is_wanted)):
            with _blamed_on(position):
                head, markers = self._encode_head(question, budget, is_wanted)
            sequence, is_cut = self._join(head, state, budget)
            self._check(len(sequence), markers, is_cut, position, budget)
            sequences.append(self._sequence(question.kind, sequence, markers))
            places.append(
                AnswerPlace(
                    sequence=position,
                    first_row=0,
                    num_options=len(markers),
                    temperature=self._decision.temperature.of(question.kind, len(markers)),
                    is_by_row=True,
                    is_truncated=is_cut,
                )
            )
        return EncodedDecisions(
            sequences=tuple(sequences),
            places=tuple(places),
            num_input_tokens=sum(sequence.num_tokens for sequence in sequences),
            num_output_tokens=0,
        )

    def native_confidence(self, kind: QuestionType, p: Probabilities) -> float | None:
        if kind is QuestionType.NOUL:
            return float(p.max())
        return entropy_confidence(p)

    def _budget(self, request: DecideRequest) -> _Budget:
        """The lengths in force.

        Raises:
            InferenceError: VALIDATION, a length of the request that the model does not have.
        """
        max_len = min(request.max_len or self._max_tokens, self._max_tokens)
        head_max_len = request.head_max_len
        if head_max_len is None:
            return _Budget(max_len=max_len, head_max_len=self._decision.limits.head_max_len)
        if not LAYA_MIN_HEAD <= head_max_len < max_len:
            raise InferenceError(
                ErrorKind.VALIDATION,
                "value_error",
                f"head_max_len: expected {LAYA_MIN_HEAD} to {max_len - 1}, below the longest "
                f"sequence, found {head_max_len}",
                field="head_max_len",
            )
        return _Budget(max_len=max_len, head_max_len=head_max_len)

    def _encode_state(self, request: DecideRequest, budget: _Budget, is_wanted: IsWanted) -> _State:
        # Of a conversation the newest turns stand last, and count most.
        keeps_end = isinstance(request.state, list)
        side = TruncationSide.LEFT if keeps_end else TruncationSide.RIGHT
        truncation = Truncation(max_tokens=budget.max_len, side=side)
        text = self._without_mask(as_text(request.state))
        with _blamed_on(None):
            (ids,) = self._tokenizer.encode_pieces([text], truncation, is_wanted=is_wanted)
        return _State(ids=ids, keeps_end=keeps_end)

    def _encode_head(
        self, question: Question, budget: _Budget, is_wanted: IsWanted
    ) -> tuple[list[int], list[int]]:
        """[CLS] instructions [SEP] [MASK] option ... [SEP], and where the masks stand."""
        ids = self._decision.special_ids
        options = self._encode_options(question, is_wanted)
        room = budget.head_max_len - sum(map(len, options))
        if room < MIN_INSTRUCTION_TOKENS:
            share = (budget.head_max_len - MIN_INSTRUCTION_TOKENS) // len(options)
            options = [option[: max(LEAST_OPTION_TOKENS, share)] for option in options]
            room = budget.head_max_len - sum(map(len, options))
        kept = max(LEAST_INSTRUCTION_TOKENS, room)
        text = f"{question.kind.value} question: {self._without_mask(instructions_of(question))}"
        (asked,) = self._tokenizer.encode_pieces(
            [text], Truncation(max_tokens=kept), is_wanted=is_wanted
        )
        head, markers = [ids["cls"], *asked[:kept], ids["sep"]], []
        for option in options:
            markers.append(len(head))
            head += option
        return [*head, ids["sep"]], markers

    def _encode_options(self, question: Question, is_wanted: IsWanted) -> list[list[int]]:
        """Each option behind its mask."""
        most = self._decision.limits.option_tokens
        texts = [" " + self._without_mask(text) for text in option_texts(question)]
        encoded = self._tokenizer.encode_pieces(
            texts, Truncation(max_tokens=most), is_wanted=is_wanted
        )
        mask = self._decision.special_ids["mask"]
        return [[mask, *ids[:most]] for ids in encoded]

    def _join(self, head: list[int], state: _State, budget: _Budget) -> tuple[list[int], bool]:
        """Question and state as one sequence, and whether the state lost tokens."""
        room = max(0, budget.max_len - len(head) - 1)
        kept = state.cut(room)
        sequence = [*head, *kept, self._decision.special_ids["sep"]][: budget.max_len]
        return sequence, len(kept) < len(state.ids)

    def _check(
        self, length: int, markers: Sequence[int], is_cut: bool, position: int, budget: _Budget
    ) -> None:
        if markers[-1] >= length:
            num_kept = sum(marker < length for marker in markers)
            raise _too_long(
                f"only {num_kept} of its {len(markers)} options fit in a sequence of "
                f"{budget.max_len} tokens behind instructions that share {budget.head_max_len} "
                f"with them; {self._remedy(budget)}",
                position,
            )
        if is_cut and not self._is_truncating:
            raise _too_long(
                f"question and state have more than {budget.max_len} tokens, and the server cuts "
                "no state (--auto-truncate=false); shorten it",
                position,
            )

    def _remedy(self, budget: _Budget) -> str:
        """What a client can do about options that do not fit."""
        remedies = []
        if budget.max_len < self._max_tokens:
            remedies.append(f"raise max_len, up to {self._max_tokens}")
        if budget.head_max_len >= budget.max_len > LAYA_MIN_HEAD:
            remedies.append(f"lower head_max_len to below {budget.max_len}")
        return ", or ".join((*remedies, "ask with fewer or shorter options"))

    def _sequence(self, kind: QuestionType, ids: list[int], markers: list[int]) -> EncodedText:
        types = np.full(len(ids), self._decision.type_ids[kind.value], dtype=np.int64)
        return EncodedText(
            input_ids=np.array(ids, dtype=np.int64),
            token_type_ids=types,
            readout_positions=np.array(markers, dtype=np.int64),
        )

    def _without_mask(self, text: str) -> str:
        return text.replace(self._decision.mask_token, " ")


@contextmanager
def _blamed_on(position: int | None) -> Iterator[None]:
    """Errors name the question at this position; None = the state."""
    try:
        yield
    except InferenceError as error:
        error.item, error.field = position, "state" if position is None else error.field
        raise


def option_texts(question: Question) -> list[str]:
    """What the model reads of each option."""
    return [
        _option_text(question.kind, index, option) for index, option in enumerate(question.options)
    ]


def _option_text(kind: QuestionType, index: int, option: AnswerOption) -> str:
    if kind is QuestionType.SCORE:
        return f"level {index}: {as_text(option.text)}"
    if not is_blank(option.text):
        return f"{option.name}: {as_text(option.text)}"
    return option.name if kind is QuestionType.CHOICE else f"{option.name}: {_DEFAULT_TEXTS[index]}"


def _too_long(message: str, position: int) -> InferenceError:
    return InferenceError(ErrorKind.VALIDATION, "max_length_exceeded", message, item=position)
