"""Makes one text of a conversation, by the artifact's chat template.

The template runs for each request, so how long it may take and how much text is kept are bounded.
Knows nothing of tokens.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from infinity_v3.artifacts.manifest import ChatTemplate
from infinity_v3.runtime.errors import ITEMS_FIELD, ErrorKind, InferenceError
from infinity_v3.runtime.requests import Conversation, Message, TruncationSide
from infinity_v3.runtime.truncation import Truncation
from infinity_v3.runtime.wanted import IsWanted

if TYPE_CHECKING:
    from jinja2 import Template

MAX_RENDER_S = 5.0
"""A template that takes longer for one conversation is stopped."""
_REASON_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedText:
    """What a template made of a conversation.

    Attributes:
        text: as much of it as was kept, at the side off the cut.
        num_characters: of the whole text, as far as it was made.
    """

    text: str
    num_characters: int


class ChatRenderer:
    """The chat template of one loaded model, from any thread.

    Args:
        source: the template.
        facts: what the manifest says of it.
    """

    def __init__(self, source: str, facts: ChatTemplate) -> None:
        self._source = source
        self._facts = facts
        self._lock = Lock()
        self._template: Template | None = None

    @classmethod
    def from_file(cls, folder: Path, facts: ChatTemplate) -> "ChatRenderer":
        """Read the template of an artifact; it is compiled when the first conversation comes.

        Raises:
            OSError, UnicodeDecodeError: the file cannot be read.
        """
        return cls((folder / facts.file).read_text(encoding="utf-8"), facts)

    def render(
        self,
        conversation: Conversation,
        position: int,
        truncation: Truncation,
        *,
        max_characters: int,
        is_wanted: IsWanted,
    ) -> RenderedText:
        """Make the text of a conversation.

        Args:
            conversation: with at least one message.
            position: of the item, for errors.
            truncation: where the text will be cut.
            max_characters: no more of the text than that is kept.
            is_wanted: asked while the template runs.

        Raises:
            InferenceError: TOKENIZER, the template refused the conversation or took too long.
            CancelledError: nobody waits any more.
        """
        from infinity_v3.runtime.chat_environment import TEMPLATE_ERRORS

        messages = [_as_template_sees(message, self._facts) for message in conversation.messages]
        variables = {**self._facts.variables, "messages": messages}
        try:
            pieces = self._compiled().generate(**variables)
            return _collect(_in_time(pieces, position, is_wanted), truncation, max_characters)
        except MemoryError:
            raise _failed("it takes too much memory", position) from None
        except TEMPLATE_ERRORS as error:
            raise _failed(_reason(error), position) from error

    def _compiled(self) -> "Template":
        with self._lock:
            if self._template is None:
                from infinity_v3.runtime.chat_environment import compile_template

                self._template = compile_template(self._source)
            return self._template


def _as_template_sees(message: Message, facts: ChatTemplate) -> Mapping[str, object]:
    """The content as it came, unless the template only takes it the other way."""
    content = message.content
    is_text = isinstance(content, str)
    in_parts = not facts.takes_text if is_text else facts.takes_parts
    parts = (content,) if isinstance(content, str) else content
    if in_parts:
        return {"role": message.role, "content": [{"type": "text", "text": part} for part in parts]}
    return {"role": message.role, "content": "".join(parts)}


def _in_time(pieces: Iterator[str], position: int, is_wanted: IsWanted) -> Iterator[str]:
    end_s = time.monotonic() + MAX_RENDER_S
    for piece in pieces:
        if not is_wanted():
            raise CancelledError
        if time.monotonic() > end_s:
            raise _failed(f"it takes longer than {MAX_RENDER_S:g} s", position)
        yield piece


def _collect(pieces: Iterator[str], truncation: Truncation, max_characters: int) -> RenderedText:
    """Join pieces, but keep no more of them than can matter."""
    kept: deque[str] = deque()
    num_kept = num_characters = 0
    cuts_right = truncation.is_allowed and truncation.side is TruncationSide.RIGHT
    for piece in pieces:
        num_characters += len(piece)
        if truncation.is_allowed or num_characters <= max_characters:
            kept.append(piece)
            num_kept += len(piece)
        if cuts_right and num_kept > max_characters:
            break
        while kept and not cuts_right and num_kept - len(kept[0]) > max_characters:
            num_kept -= len(kept.popleft())
    return RenderedText(text="".join(kept), num_characters=num_characters)


def _reason(error: Exception) -> str:
    """What a template says itself is meant for the reader; other errors are its mistakes."""
    from jinja2 import TemplateError

    said = str(error) if isinstance(error, TemplateError) else ""
    return " ".join(said.split())[:_REASON_CHARACTERS] or type(error).__name__


def _failed(reason: str, position: int) -> InferenceError:
    return InferenceError(
        ErrorKind.TOKENIZER,
        "tokenizer_error",
        f"the chat template makes no text of this conversation: {reason}",
        item=position,
        field=ITEMS_FIELD,
    )
