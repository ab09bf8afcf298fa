"""Turns the `inputs` of a body into the items of a request. Knows nothing of routes or models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from infinity_v3.runtime.errors import ErrorKind
from infinity_v3.runtime.requests import ClassifyInput, Conversation, TextInput, TextPair
from infinity_v3.server.conversations import read_conversation, shows_images
from infinity_v3.server.errors import HttpError, validation
from infinity_v3.server.schemas import Element, Message

ItemT = TypeVar("ItemT", bound=ClassifyInput)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Generic[ItemT]):
    """Items in request order; `has_images`: some conversation shows one."""

    items: tuple[ItemT, ...]
    is_list: bool
    has_images: bool = False

    @property
    def num_items(self) -> int:
        return len(self.items)

    @property
    def num_characters(self) -> int:
        """Characters of texts, ids of id arrays."""
        return sum(map(_num_characters, self.items))

    @property
    def has_conversations(self) -> bool:
        return any(isinstance(item, Conversation) for item in self.items)


def _num_characters(item: ClassifyInput) -> int:
    if isinstance(item, TextPair):
        return len(item.query) + len(item.document)
    return sum(map(len, item.texts)) if isinstance(item, Conversation) else len(item)


def single(item: ItemT, *, has_images: bool = False) -> Items[ItemT]:
    """A bare item: errors of it name no position."""
    return Items(items=(item,), is_list=False, has_images=has_images)


def blanks(num_items: int) -> tuple[str, ...]:
    """Stand for the elements of a list that its number alone will refuse.

    Looking at millions of elements first would hold up every other request.
    """
    return ("",) * num_items


def parse_items(value: str | list[Element], field: str, *, max_items: int) -> Items[TextInput]:
    """Tell a bare item from a list of items.

    Args:
        value: the field, already of the right types.
        field: its name, for messages.
        max_items: elements of a longer list are not looked at.

    Raises:
        HttpError: 422 for mixed elements, 400 for an empty list.
    """
    if isinstance(value, str):
        return single(value)
    if not value:
        raise empty_list(field)
    if isinstance(value[0], int):
        return single(token_ids(value, field))
    if isinstance(value[0], Message):
        messages = all_messages(value, field)
        return single(read_conversation(messages), has_images=shows_images(messages))
    if len(value) > max_items:
        return Items(items=blanks(len(value)), is_list=True)
    items = tuple(_item(element, f"{field}[{index}]") for index, element in enumerate(value))
    return Items(items=items, is_list=True, has_images=any(map(_shows_images, value)))


def _item(element: Element, path: str) -> TextInput:
    if isinstance(element, str):
        return element
    if not isinstance(element, list):
        raise validation(
            f"`{path}`: expected a text, an array of token ids or a conversation", param=path
        )
    if element and isinstance(element[0], Message):
        return read_conversation(all_messages(element, path))
    return token_ids(element, path)


def _shows_images(element: Element) -> bool:
    return isinstance(element, list) and shows_images(element)


def all_messages(values: Sequence[object], path: str) -> list[Message]:
    """A conversation.

    Raises:
        HttpError: 422 naming the first element that is no message.
    """
    check_all(values, Message, "message", path)
    return [value for value in values if isinstance(value, Message)]


def token_ids(values: Sequence[object], path: str) -> tuple[int, ...]:
    """An array of ids.

    Raises:
        HttpError: 422 naming the first element that is none.
    """
    check_all(values, int, "token id", path)
    return cast(tuple[int, ...], tuple(values))


def check_all(values: Sequence[object], kind: type, noun: str, path: str) -> None:
    """Refuse an array of different things.

    Raises:
        HttpError: 422 naming the first element of another kind.
    """
    if all(issubclass(found, kind) for found in set(map(type, values))):
        return  # without a loop over what may be millions
    for index, value in enumerate(values):
        if not isinstance(value, kind):
            place = f"{path}[{index}]"
            raise validation(
                f"`{place}`: expected a {noun} like the elements before it", param=place
            )


def empty_list(field: str) -> HttpError:
    """The 400 for a list without items."""
    return HttpError(ErrorKind.EMPTY, f"`{field}` cannot be empty", param=field)
