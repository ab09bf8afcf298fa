"""Texts to token ids and back, exactly as the checkpoint's own tokenizer does it.

Wraps one `tokenizers.Tokenizer` that is never changed after loading, so any thread may use it
at any time. Knows nothing of prompts' names, queues or engines.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tokenizers

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.checks import check_ids, empty_item, too_long
from infinity_v3.runtime.errors import ITEMS_FIELD, ErrorKind, InferenceError
from infinity_v3.runtime.requests import TextInput, TruncationSide
from infinity_v3.runtime.tokens import TokenPiece, read_pieces
from infinity_v3.runtime.truncation import Frame, Truncation, clip_ids

MAX_CHARACTERS_PER_TOKEN = 250
WINDOW_CHARACTERS_PER_TOKEN = 16
MIN_WINDOW_CHARACTERS = 1024
WINDOW_GROWTH = 4
BRIEF_CHARACTERS = 1024
"""Up to this, handing the work to the library's thread pool takes longer than doing it."""
CHUNK_ITEMS = 32
"""Items encoded per call, which releases the GIL: between two calls others get their turn."""


class TextTokenizer:
    """The tokenizer of one loaded model.

    Args:
        backend: owned by this object from now on; its truncation and padding are switched off.
        vocab_size: rows of the model's embedding table.
        max_input_tokens: longest input the model takes.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, *, vocab_size: int, max_input_tokens: int
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._vocab_size = vocab_size
        self._max_characters = MAX_CHARACTERS_PER_TOKEN * max_input_tokens
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        self._has_token_types = any(backend.encode("a").type_ids)
        largest = max([backend.get_vocab_size() - 1, *added])
        self._may_exceed_table = largest >= vocab_size

    @classmethod
    def from_file(cls, path: Path, *, vocab_size: int, max_input_tokens: int) -> "TextTokenizer":
        """Read a tokenizer.json."""
        backend = tokenizers.Tokenizer.from_file(str(path))
        return cls(backend, vocab_size=vocab_size, max_input_tokens=max_input_tokens)

    @property
    def num_special_tokens(self) -> int:
        """Tokens that are put around every text."""
        return int(self._backend.num_special_tokens_to_add(False))

    def encode(
        self, items: Sequence[TextInput], truncation: Truncation, *, prompt: str = ""
    ) -> list[EncodedText]:
        """Turn items into what the model is fed.

        Args:
            items: texts, which get the prompt in front and special tokens around; ids are fed as
                they are. None is empty.
            truncation: limit and what happens beyond it.
            prompt: prefix of every text; counted, and cut like the text.

        Raises:
            InferenceError: the first item at fault, by its position in `items`.
        """
        encoded: list[EncodedText] = []
        for start in range(0, len(items), CHUNK_ITEMS):
            chunk = items[start : start + CHUNK_ITEMS]
            encoded.extend(self._encode_chunk(chunk, start, truncation, prompt))
        return encoded

    def pieces(
        self, texts: Sequence[str], *, add_special_tokens: bool
    ) -> list[tuple[TokenPiece, ...]]:
        """Show how whole texts split into tokens, with character offsets.

        Raises:
            InferenceError: a text has more than 250 characters per token of the longest input, or
                the tokenizer failed.
        """
        pieces: list[tuple[TokenPiece, ...]] = []
        for position, text in enumerate(texts):
            self._check_characters(text, position)
            encoding = self._encode_one(text, position, add_special_tokens=add_special_tokens)
            pieces.append(read_pieces(encoding, text))
        return pieces

    def decode(self, id_lists: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]:
        """Turn ids back into texts.

        Raises:
            InferenceError: VALIDATION, an id outside the vocabulary, with its item's position.
        """
        for position, ids in enumerate(id_lists):
            check_ids(ids, self._vocab_size, position)
        lists = [list(ids) for ids in id_lists]
        return list(self._backend.decode_batch(lists, skip_special_tokens=skip_special_tokens))

    def _encode_chunk(
        self, chunk: Sequence[TextInput], start: int, truncation: Truncation, prompt: str
    ) -> Iterator[EncodedText]:
        texts = [prompt + item for item in chunk if isinstance(item, str)]
        short = [text for text in texts if self._is_encoded_whole(text, truncation)]
        encodings = iter(self._encode_short(short))
        remaining_texts = iter(texts)
        for position, item in enumerate(chunk, start):
            if isinstance(item, str):
                text = next(remaining_texts)
                yield self._finish_text(text, encodings, position, truncation)
            else:
                yield self._take_ids(item, position, truncation)

    def _is_encoded_whole(self, text: str, truncation: Truncation) -> bool:
        if truncation.is_allowed:
            return len(text) <= _first_window(truncation)
        return len(text) <= self._max_characters

    def _encode_short(self, texts: list[str]) -> list[tokenizers.Encoding | None]:
        try:
            if sum(map(len, texts)) <= BRIEF_CHARACTERS:
                return [self._backend.encode(text) for text in texts]
            return list(self._backend.encode_batch_fast(texts))
        except Exception:
            # The library raises bare Exception and does not say which text failed: _finish_text
            # asks one by one.
            return [None] * len(texts)

    def _finish_text(
        self,
        text: str,
        encodings: Iterator[tokenizers.Encoding | None],
        position: int,
        truncation: Truncation,
    ) -> EncodedText:
        if self._is_encoded_whole(text, truncation):
            encoding = next(encodings) or self._encode_one(text, position)
        elif truncation.is_allowed:
            encoding = self._encode_windows(text, position, truncation)
        else:
            raise too_long(self._max_characters, len(text), "characters", position)
        return self._take_encoding(encoding, position, truncation)

    def _encode_windows(
        self, text: str, position: int, truncation: Truncation
    ) -> tokenizers.Encoding:
        """Encode only as much of a long text as decides the tokens that stay."""
        width = _first_window(truncation)
        while width < len(text):
            window = _window(text, width, truncation.side)
            encoding = self._encode_one(window, position)
            if _is_settled(encoding, len(window), truncation):
                return encoding
            width *= WINDOW_GROWTH
        return self._encode_one(text, position)

    def _encode_one(
        self, text: str, position: int, *, add_special_tokens: bool = True
    ) -> tokenizers.Encoding:
        try:
            # The batch call, because only it releases the GIL.
            return self._backend.encode_batch([text], add_special_tokens=add_special_tokens)[0]
        except Exception as error:  # the library raises no narrower type
            raise InferenceError(
                ErrorKind.TOKENIZER,
                "tokenizer_error",
                f"the tokenizer failed on this text ({type(error).__name__})",
                item=position,
                field=ITEMS_FIELD,
            ) from error

    def _take_encoding(
        self, encoding: tokenizers.Encoding, position: int, truncation: Truncation
    ) -> EncodedText:
        ids: list[int] = encoding.ids
        if not ids:
            raise empty_item(position)
        types: list[int] | None = encoding.type_ids if self._has_token_types else None
        if len(ids) > truncation.max_tokens:
            _check_truncation(len(ids), position, truncation)
            frame = Frame.from_mask(encoding.special_tokens_mask)
            ids = frame.cut(ids, truncation)
            types = None if types is None else frame.cut(types, truncation)
        if self._may_exceed_table:
            self._check_table(ids, position)
        return _encoded(ids, types)

    def _take_ids(self, ids: Sequence[int], position: int, truncation: Truncation) -> EncodedText:
        if len(ids) > truncation.max_tokens:
            _check_truncation(len(ids), position, truncation)
        check_ids(ids, self._vocab_size, position)
        return _encoded(clip_ids(ids, truncation, self._special_ids), None)

    def _check_characters(self, text: str, position: int) -> None:
        if len(text) > self._max_characters:
            raise too_long(self._max_characters, len(text), "characters", position)

    def _check_table(self, ids: Sequence[int], position: int) -> None:
        if max(ids) >= self._vocab_size:
            raise InferenceError(
                ErrorKind.TOKENIZER,
                "tokenizer_error",
                f"the tokenizer gave token id {max(ids)}, "
                f"the model's table ends at {self._vocab_size - 1}",
                item=position,
                field=ITEMS_FIELD,
            )


def _encoded(ids: Sequence[int], types: Sequence[int] | None) -> EncodedText:
    return EncodedText(
        input_ids=np.array(ids, dtype=np.int64),
        token_type_ids=None if types is None else np.array(types, dtype=np.int64),
    )


def _check_truncation(num_tokens: int, position: int, truncation: Truncation) -> None:
    if not truncation.is_allowed:
        raise too_long(truncation.max_tokens, num_tokens, "tokens", position)


def _first_window(truncation: Truncation) -> int:
    return max(WINDOW_CHARACTERS_PER_TOKEN * truncation.max_tokens, MIN_WINDOW_CHARACTERS)


def _window(text: str, width: int, side: TruncationSide) -> str:
    if side is TruncationSide.RIGHT:
        return text[:width]
    start = len(text) - width
    # Starting at a space keeps the grouping of digits and repeated characters in phase.
    space = text.rfind(" ", max(start - MIN_WINDOW_CHARACTERS, 0), start + 1)
    return text[start if space < 0 else space :]


def _is_settled(encoding: tokenizers.Encoding, width: int, truncation: Truncation) -> bool:
    """Whether text beyond the window cannot matter: what stays lies in the half off the cut."""
    frame = Frame.from_mask(encoding.special_tokens_mask)
    room = frame.room(truncation)
    end = len(encoding) - frame.num_trailing
    if end - frame.num_leading <= room:
        return False
    if room <= 0:
        return True
    is_right = truncation.side is TruncationSide.RIGHT
    span = encoding.token_to_chars(frame.num_leading + room - 1 if is_right else end - room)
    if span is None:
        return False
    return span[1] <= width // 2 if is_right else span[0] >= width // 2
