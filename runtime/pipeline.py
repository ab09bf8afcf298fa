"""The way of one request: a slot, tokens, the queue, rows. The same for every task.

Belongs to the event loop thread. Knows nothing of what rows mean or of HTTP.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.checks import check_document_tokens, check_items, check_max_tokens
from infinity_v3.runtime.finished import FinishedRequest
from infinity_v3.runtime.pending import PendingRequest
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.runtime.requests import ClassifyInput, Schedule, TextOptions
from infinity_v3.runtime.text_pool import TextPool
from infinity_v3.runtime.truncation import Truncation
from infinity_v3.runtime.work import Readout


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRules:
    """What `TextOptions` are for one model.

    Attributes:
        max_input_tokens: longest input of the model.
        is_truncating: too long inputs are cut when a request does not say.
    """

    max_input_tokens: int
    is_truncating: bool
    prompts: PromptTable

    def truncation(
        self, options: TextOptions, *, max_document_tokens: int | None = None
    ) -> Truncation:
        """Decide what happens to long inputs.

        Raises:
            InferenceError: VALIDATION, a length that the model does not have.
        """
        check_max_tokens(options.max_tokens, self.max_input_tokens)
        check_document_tokens(max_document_tokens)
        default = self.is_truncating or options.max_tokens is not None
        return Truncation(
            max_tokens=options.max_tokens or self.max_input_tokens,
            is_allowed=default if options.truncate is None else options.truncate,
            side=options.truncation_side,
            max_document_tokens=max_document_tokens,
        )


class Queue(Protocol):
    """Where tokenised items are computed.

    Obligations: called on the event loop thread; `slot` gives the monotonic time; `run` while the
    caller holds a slot. A request is
    queued as a whole or not at all.
    """

    def slot(self) -> AbstractContextManager[float]: ...

    async def run(
        self, encoded: Sequence[EncodedText], schedule: Schedule, readout: Readout
    ) -> PendingRequest: ...


class TextPipeline:
    """Carries requests of one model from items to rows."""

    def __init__(self, rules: TextRules, texts: TextPool, queue: Queue) -> None:
        self.rules = rules
        self.texts = texts
        self._queue = queue

    def slot(self) -> AbstractContextManager[float]:
        """Hold one request slot while the context lasts; gives the time at which it began.

        Raises:
            InferenceError: OVERLOADED.
        """
        return self._queue.slot()

    async def infer(
        self,
        items: Sequence[ClassifyInput],
        options: TextOptions,
        schedule: Schedule,
        readout: Readout,
        *,
        max_document_tokens: int | None = None,
    ) -> FinishedRequest:
        """Check the items of a request and give each its row.

        Args:
            items: at least one.
            options: how they become tokens.
            schedule: when they may run.
            readout: what becomes of the model's output.
            max_document_tokens: the documents of pairs are cut to so many first; None = not.

        Raises:
            InferenceError: refused, or failed as a whole; with the item's place in `items`.
        """
        truncation = self.rules.truncation(options, max_document_tokens=max_document_tokens)
        prompt = self.rules.prompts.text(options.prompt_name)
        check_items(items, has_prompt_name=options.prompt_name is not None)
        with self.slot() as started_s:
            encoded = await self.texts.encode(items, truncation, prompt)
            return await self.run(encoded, schedule, readout, started_s)

    async def run(
        self,
        encoded: Sequence[EncodedText],
        schedule: Schedule,
        readout: Readout,
        started_s: float,
    ) -> FinishedRequest:
        """Queue tokenised items and wait for their rows; a slot is held.

        Args:
            encoded: what the model is fed.
            schedule: when it may run.
            readout: what becomes of the model's output.
            started_s: when the slot was taken.

        Raises:
            InferenceError: refused, failed, or its deadline passed.
        """
        tokenization_s = time.monotonic() - started_s
        pending = await self._queue.run(encoded, schedule, readout)
        return FinishedRequest.of(pending, tokenization_s)
