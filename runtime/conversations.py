"""Conversations to encodings: the text of the chat template, to which no special token is added.

Knows nothing of the other kinds of items.
"""

import tokenizers

from infinity_v3.runtime.capabilities import no_chat_template
from infinity_v3.runtime.chat_template import ChatRenderer
from infinity_v3.runtime.checks import too_long
from infinity_v3.runtime.requests import Conversation
from infinity_v3.runtime.single_texts import SingleEncoder
from infinity_v3.runtime.truncation import Truncation
from infinity_v3.runtime.wanted import IsWanted


class ConversationEncoder:
    """Encodes conversations for one loaded model.

    Args:
        backend: neither truncates nor pads.
        renderer: None = the artifact has no chat template.
        max_characters: longest text that is encoded whole; of others no more is looked at.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, renderer: ChatRenderer | None, *, max_characters: int
    ) -> None:
        self._renderer = renderer
        self._max_characters = max_characters
        self._texts = SingleEncoder(
            backend, max_characters=max_characters, adds_special_tokens=False
        )

    def encode(
        self,
        conversation: Conversation,
        position: int,
        truncation: Truncation,
        is_wanted: IsWanted,
    ) -> tokenizers.Encoding:
        """Encode as much of a conversation as decides the tokens that stay.

        Raises:
            InferenceError: there is no chat template, it refuses the conversation, its text may not
                be cut and is too long, or the tokenizer failed.
        """
        if self._renderer is None:
            raise no_chat_template()
        found = self._renderer.render(
            conversation,
            position,
            truncation,
            max_characters=self._max_characters,
            is_wanted=is_wanted,
        )
        if not truncation.is_allowed and found.num_characters > self._max_characters:
            raise too_long(self._max_characters, found.num_characters, "characters", position)
        return self._texts.encode(found.text, position, truncation)[0]
