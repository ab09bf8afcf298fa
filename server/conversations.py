"""Turns the messages of a body into the runtime's conversations. Knows nothing of models."""

from collections.abc import Iterable, Sequence

from infinity_v3.runtime.requests import Conversation
from infinity_v3.runtime.requests import Message as PlainMessage
from infinity_v3.server.schemas import ImagePart, Message, RoleMessage, TextPart

AnyMessage = Message | RoleMessage


def read_conversation(messages: Sequence[AnyMessage]) -> Conversation:
    """What is said, without the images."""
    return Conversation(
        messages=tuple(
            PlainMessage(role=message.role, content=_content(message)) for message in messages
        )
    )


def _content(message: AnyMessage) -> str | tuple[str, ...]:
    return message.content if isinstance(message.content, str) else text_parts(message)


def text_parts(message: AnyMessage) -> tuple[str, ...]:
    """The texts of a message, one by one."""
    if isinstance(message.content, str):
        return (message.content,)
    return tuple(part.text for part in message.content if isinstance(part, TextPart))


def shows_images(values: Iterable[object]) -> bool:
    """Whether one of these is a message with an image."""
    messages = (value for value in values if isinstance(value, Message | RoleMessage))
    contents = (message.content for message in messages if isinstance(message.content, list))
    return any(isinstance(part, ImagePart) for content in contents for part in content)
