"""Texts to token ids and back, exactly as the checkpoint's own tokenizer does it.

Wraps one `tokenizers.Tokenizer` that is never changed after loading, so any thread may use it
at any time. Knows nothing of prompts' names, queues or engines.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import tokenizers

from infinity_v3.artifacts.manifest import PairTemplate
from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.chat_template import ChatRenderer
from infinity_v3.runtime.checks import check_ids, too_long, too_many_tokens
from infinity_v3.runtime.chunks import chunks
from infinity_v3.runtime.conversations import ConversationEncoder
from infinity_v3.runtime.encodings import as_encoded, encode_one
from infinity_v3.runtime.errors import ITEMS_FIELD, ErrorKind, InferenceError
from infinity_v3.runtime.late_interaction import Side
from infinity_v3.runtime.pair_formats import choose_format
from infinity_v3.runtime.pairs import PairEncoder
from infinity_v3.runtime.requests import ClassifyInput, Conversation, TextInput, TextPair
from infinity_v3.runtime.single_texts import SingleEncoder, kept_places
from infinity_v3.runtime.tokens import TokenPiece, read_pieces
from infinity_v3.runtime.truncation import Frame, Truncation, clip_ids
from infinity_v3.runtime.wanted import IsWanted, always, while_wanted
from infinity_v3.runtime.windows import MAX_CHARACTERS_PER_TOKEN
from infinity_v3.runtime.words import TokenizedText, WordReader, WordRule

MAX_LISTED_TOKENS = 250_000
"""Tokens that one request may have shown; each takes some 600 bytes until it is sent."""


class TextTokenizer:
    """The tokenizer of one loaded model.

    What takes long asks between two items whether it is still wanted, and raises CancelledError
    when it is not.

    Args:
        backend: owned by this object from now on; its truncation and padding are switched off.
        vocab_size: rows of the model's embedding table.
        max_input_tokens: longest input the model takes.
        pair_template: how pairs become one text; None = the tokenizer joins them its own way.
        chat: how conversations become one text; None = they are refused.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        vocab_size: int,
        max_input_tokens: int,
        pair_template: PairTemplate | None = None,
        chat: ChatRenderer | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._vocab_size = vocab_size
        self._max_characters = MAX_CHARACTERS_PER_TOKEN * max_input_tokens
        self._single = SingleEncoder(backend, max_characters=self._max_characters)
        self._bare = SingleEncoder(
            backend, max_characters=self._max_characters, adds_special_tokens=False
        )
        self._conversations = ConversationEncoder(
            backend, chat, max_characters=self._max_characters
        )
        self._new_pair_format = choose_format(backend, pair_template)
        added = backend.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added.items() if token.special)
        sample = backend.encode("a")
        self._has_token_types = any(sample.type_ids)
        self._num_leading = Frame.from_mask(sample.special_tokens_mask).num_leading
        largest = max([backend.get_vocab_size() - 1, *added])
        self._may_exceed_table = largest >= vocab_size

    @classmethod
    def from_file(
        cls,
        path: Path,
        *,
        vocab_size: int,
        max_input_tokens: int,
        pair_template: PairTemplate | None = None,
        chat: ChatRenderer | None = None,
    ) -> "TextTokenizer":
        """Read a tokenizer.json."""
        return cls(
            tokenizers.Tokenizer.from_file(str(path)),
            vocab_size=vocab_size,
            max_input_tokens=max_input_tokens,
            pair_template=pair_template,
            chat=chat,
        )

    @property
    def num_special_tokens(self) -> int:
        """Tokens that are put around every text."""
        return int(self._backend.num_special_tokens_to_add(False))

    @property
    def num_pair_tokens(self) -> int:
        """Tokens that every pair has beside those of its texts."""
        return self._pair_encoder(Truncation(max_tokens=1)).num_fixed_tokens

    def encode(
        self,
        items: Sequence[ClassifyInput],
        truncation: Truncation,
        *,
        prompt: str = "",
        is_wanted: IsWanted = always,
    ) -> list[EncodedText]:
        """Turn items into what the model is fed.

        Args:
            items: texts, which get the prompt in front and special tokens around; ids are fed as
                they are; pairs and conversations follow their templates. None is empty.
            truncation: limit and what happens beyond it.
            prompt: prefix of every text; counted, and cut like the text.
            is_wanted: asked between two items.

        Raises:
            InferenceError: the first item at fault, by its position in `items`.
        """
        if len(items) == 1 and isinstance(items[0], str):
            # Most requests are one text, and the steps below take as long as the library.
            found_one = self._single.encode_one(prompt + items[0], 0, truncation)
            return [self._take_encoding(found_one, kept_places(found_one, 0, truncation), 0)]
        encoded: list[EncodedText] = []
        pair_encoder = self._pair_encoder(truncation)
        for start, chunk in chunks(items, TextPair):
            pairs = [item for item in chunk if isinstance(item, TextPair)]
            single = [item for item in chunk if not isinstance(item, TextPair)]
            # Each chunk is all pairs or none.
            found = self._encode_pairs(pairs, start, pair_encoder)
            encoded.extend(while_wanted(found, is_wanted))
            found = self._encode_chunk(single, start, truncation, prompt, is_wanted)
            encoded.extend(while_wanted(found, is_wanted))
        return encoded

    def encode_side(
        self,
        items: Sequence[TextInput],
        truncation: Truncation,
        side: Side,
        *,
        prompt: str = "",
        is_wanted: IsWanted = always,
    ) -> list[EncodedText]:
        """Turn items into what a late-interaction model is fed.

        Ids, and what the chat template makes of conversations, are fed as they are.

        Raises:
            InferenceError: the first item at fault, by its position.
        """
        limit, place = side.limit(truncation), min(self._num_leading, 1)
        text_limit = side.without_prefix(limit)
        encoded: list[EncodedText] = []
        for start, chunk in chunks(items, str):
            is_text = isinstance(chunk[0], str)
            rule = text_limit if is_text else truncation
            found = self._encode_chunk(chunk, start, rule, prompt, is_wanted)
            if is_text:
                found = (side.complete(text, place, limit) for text in found)
            encoded.extend(while_wanted(found, is_wanted))
        return encoded

    def encode_words(
        self,
        texts: Sequence[str],
        truncation: Truncation,
        *,
        prompt: str = "",
        is_wanted: IsWanted = always,
    ) -> list[TokenizedText]:
        """Turn texts into what the model is fed, and keep which characters each token is of.

        Args:
            texts: none is empty.
            truncation: limit and what happens beyond it.
            prompt: as in `encode`; its tokens are not listed.
            is_wanted: asked between two texts.

        Raises:
            InferenceError: the first text at fault, by its position.
        """
        rule = WordRule.of(self._backend)
        return [
            self._encode_words(prompt + text, len(prompt), position, truncation, rule)
            for position, text in enumerate(while_wanted(texts, is_wanted))
        ]

    def encode_pieces(
        self, texts: Sequence[str], truncation: Truncation, *, is_wanted: IsWanted = always
    ) -> list[list[int]]:
        """Ids of parts of a sequence, without special tokens around them.

        Args:
            texts: may be empty.
            truncation: a longer text comes with one token or more beyond the limit, on the side
                that is cut.
            is_wanted: asked between two texts.

        Raises:
            InferenceError: TOKENIZER, with the text's position.
        """
        found = self._bare.encode_short(texts, truncation)
        pieces: list[list[int]] = []
        for position, text in enumerate(while_wanted(texts, is_wanted)):
            whole = found[position] or self._bare.encode(text, position, truncation)[0]
            self._check_table(whole.ids, position)
            pieces.append(whole.ids)
        return pieces

    def pieces(
        self,
        texts: Sequence[str],
        *,
        add_special_tokens: bool,
        is_wanted: IsWanted = always,
    ) -> list[tuple[TokenPiece, ...]]:
        """Show how whole texts split into tokens, with character offsets.

        Raises:
            InferenceError: a text has more than 250 characters per token of the longest input, all
                of them have too many tokens, or the tokenizer failed.
        """
        pieces: list[tuple[TokenPiece, ...]] = []
        num_listed = 0
        for position, text in enumerate(while_wanted(texts, is_wanted)):
            self._single.check_characters(text, position)
            encoding = encode_one(
                self._backend, text, position, add_special_tokens=add_special_tokens
            )
            num_listed += len(encoding)
            if num_listed > MAX_LISTED_TOKENS:
                raise too_many_tokens(MAX_LISTED_TOKENS)
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

    def _pair_encoder(self, truncation: Truncation) -> PairEncoder:
        return PairEncoder(
            self._backend,
            self._new_pair_format(),
            truncation,
            max_characters=self._max_characters,
        )

    def _encode_pairs(
        self, pairs: Sequence[TextPair], start: int, encoder: PairEncoder
    ) -> Iterator[EncodedText]:
        encoded = encoder.encode(pairs, start)
        for position, pair in enumerate(encoded, start):
            self._check_table(pair.input_ids.tolist(), position)
            yield pair

    def _encode_chunk(
        self,
        chunk: Sequence[TextInput],
        start: int,
        truncation: Truncation,
        prompt: str,
        is_wanted: IsWanted,
    ) -> Iterator[EncodedText]:
        texts = [prompt + item for item in chunk if isinstance(item, str)]
        encodings = self._single.encode_short(texts, truncation)
        remaining = iter(zip(texts, encodings, strict=True))
        for position, item in enumerate(chunk, start):
            if isinstance(item, str):
                text, encoding = next(remaining)
                found = encoding or self._single.encode(text, position, truncation)[0]
                places = kept_places(found, position, truncation)
                yield self._take_encoding(found, places, position)
            elif isinstance(item, Conversation):
                found = self._conversations.encode(item, position, truncation, is_wanted)
                places = kept_places(found, position, truncation)
                yield self._take_encoding(found, places, position)
            else:
                yield self._take_ids(item, position, truncation)

    def _encode_words(
        self, text: str, num_prompt: int, position: int, truncation: Truncation, rule: WordRule
    ) -> TokenizedText:
        encoding, num_skipped = self._single.encode(text, position, truncation)
        places = kept_places(encoding, position, truncation)
        reader = WordReader(
            rule=rule,
            text=text,
            num_prompt_characters=num_prompt,
            num_skipped_characters=num_skipped,
        )
        return TokenizedText(
            text=text[num_prompt:],
            encoded=self._take_encoding(encoding, places, position),
            tokens=reader.read(encoding, range(len(encoding)) if places is None else places),
        )

    def _take_encoding(
        self, encoding: tokenizers.Encoding, places: list[int] | None, position: int
    ) -> EncodedText:
        ids: list[int] = encoding.ids
        types: list[int] | None = encoding.type_ids if self._has_token_types else None
        if places is not None:
            ids = [ids[place] for place in places]
            types = None if types is None else [types[place] for place in places]
        self._check_table(ids, position)
        return as_encoded(ids, types)

    def _take_ids(self, ids: Sequence[int], position: int, truncation: Truncation) -> EncodedText:
        if len(ids) > truncation.max_tokens and not truncation.is_allowed:
            raise too_long(truncation.max_tokens, len(ids), "tokens", position)
        check_ids(ids, self._vocab_size, position)
        return as_encoded(clip_ids(ids, truncation, self._special_ids), None)

    def _check_table(self, ids: Sequence[int], position: int) -> None:
        if self._may_exceed_table and max(ids, default=0) >= self._vocab_size:
            raise InferenceError(
                ErrorKind.TOKENIZER,
                "tokenizer_error",
                f"the tokenizer gave token id {max(ids)}, "
                f"the model's table ends at {self._vocab_size - 1}",
                item=position,
                field=ITEMS_FIELD,
            )
