"""One text to an encoding, and the tokens of it that stay.

Knows nothing of pairs or prompts.
"""

from collections.abc import Sequence

import tokenizers

from infinity_v3.runtime.checks import empty_item, too_long
from infinity_v3.runtime.encodings import (
    BRIEF_CHARACTERS,
    encode_briefly,
    encode_many,
    encode_one,
)
from infinity_v3.runtime.requests import TruncationSide
from infinity_v3.runtime.truncation import Frame, Truncation
from infinity_v3.runtime.windows import WINDOW_GROWTH, first_width, is_safe, window


class SingleEncoder:
    """Encodes single texts for one loaded model.

    Args:
        backend: neither truncates nor pads.
        max_characters: longest text that is encoded whole; of others no more is looked at.
        adds_special_tokens: False for texts that hold all there are.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        max_characters: int,
        adds_special_tokens: bool = True,
    ) -> None:
        self._backend = backend
        self._max_characters = max_characters
        self._adds_special_tokens = adds_special_tokens

    def encode_one(self, text: str, position: int, truncation: Truncation) -> tokenizers.Encoding:
        """Encode a text: a brief one on the shortest way, others as `encode`."""
        if len(text) <= BRIEF_CHARACTERS and self._is_encoded_whole(text, truncation):
            found = encode_briefly(
                self._backend, text, add_special_tokens=self._adds_special_tokens
            )
            if found is not None:
                return found
        return self.encode(text, position, truncation)[0]

    def encode_short(
        self, texts: Sequence[str], truncation: Truncation
    ) -> list[tokenizers.Encoding | None]:
        """Encode, all at once, the texts that are not too long to be encoded whole.

        Returns:
            One per text; None = `encode` has to be asked.
        """
        is_short = [self._is_encoded_whole(text, truncation) for text in texts]
        short = [text for text, is_whole in zip(texts, is_short, strict=True) if is_whole]
        found = encode_many(self._backend, short, add_special_tokens=self._adds_special_tokens)
        encodings = iter(found)
        return [next(encodings) if is_whole else None for is_whole in is_short]

    def encode(
        self, text: str, position: int, truncation: Truncation
    ) -> tuple[tokenizers.Encoding, int]:
        """Encode as much of a text as decides the tokens that stay.

        Returns:
            The encoding with offsets, and how many characters in front were skipped.

        Raises:
            InferenceError: the text may not be cut and has too many characters, or the tokenizer
                failed.
        """
        if not truncation.is_allowed:
            self.check_characters(text, position)
            return self._encode_one(text, position), 0
        width, is_right = first_width(truncation), truncation.side is TruncationSide.RIGHT
        while width < min(len(text), self._max_characters):
            seen = window(text, width, truncation.side)
            encoding = self._encode_one(seen, position)
            if _is_settled(encoding, len(seen), truncation):
                return encoding, 0 if is_right else len(text) - len(seen)
            width *= WINDOW_GROWTH
        seen = window(text, self._max_characters, truncation.side)
        return self._encode_one(seen, position), 0 if is_right else len(text) - len(seen)

    def _encode_one(self, text: str, position: int) -> tokenizers.Encoding:
        return encode_one(
            self._backend, text, position, add_special_tokens=self._adds_special_tokens
        )

    def check_characters(self, text: str, position: int) -> None:
        """Refuse a text that is too long to be encoded whole.

        Raises:
            InferenceError: VALIDATION, code input_too_long.
        """
        if len(text) > self._max_characters:
            raise too_long(self._max_characters, len(text), "characters", position)

    def _is_encoded_whole(self, text: str, truncation: Truncation) -> bool:
        if truncation.is_allowed:
            return len(text) <= first_width(truncation)
        return len(text) <= self._max_characters


def kept_places(
    encoding: tokenizers.Encoding, position: int, truncation: Truncation
) -> list[int] | None:
    """Places of the tokens that stay; None = all.

    Raises:
        InferenceError: there are no tokens, or too many and they may not be cut.
    """
    count = len(encoding)
    if count == 0:
        raise empty_item(position)
    if count <= truncation.max_tokens:
        return None
    if not truncation.is_allowed:
        raise too_long(truncation.max_tokens, count, "tokens", position)
    return Frame.from_mask(encoding.special_tokens_mask).cut(range(count), truncation)


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
    return span is not None and is_safe(span, width, truncation.side)
