"""Turns the `inputs` of a body into the items of a request. Knows nothing of routes or models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from infinity_v3.runtime.errors import ErrorKind
from infinity_v3.runtime.requests import ClassifyInput, TextInput, TextPair
from infinity_v3.server.errors import HttpError, unsupported_task, validation
from infinity_v3.server.schemas import Element, Message

ItemT = TypeVar("ItemT", bound=ClassifyInput)


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Generic[ItemT]):
    """Items in request order; conversations are counted, but not among `items`."""

    items: tuple[ItemT, ...]
    is_list: bool
    num_items: int
    has_conversation: bool = False

    @property
    def num_characters(self) -> int:
        """Characters of texts, ids of id arrays."""
        return sum(map(_num_characters, self.items))


def _num_characters(item: ClassifyInput) -> int:
    if isinstance(item, TextPair):
        return len(item.query) + len(item.document)
    return len(item)


def one_conversation() -> Items[ItemT]:
    """A conversation in place of items."""
    return Items(items=(), is_list=False, num_items=1, has_conversation=True)


def refuse_conversations(items: Items[ItemT], deed: str = "embedded") -> None:
    """Refuse conversations: no artifact carries a chat template for them.

    Raises:
        HttpError: 424.
    """
    if items.has_conversation:
        raise unsupported_task(f"the artifact has no chat template: conversations cannot be {deed}")


def parse_items(value: str | list[Element], field: str) -> Items[TextInput]:
    """Tell a bare item from a list of items.

    Args:
        value: the field, already of the right types.
        field: its name, for messages.

    Raises:
        HttpError: 422 for mixed elements, 400 for an empty list.
    """
    if isinstance(value, str):
        return Items(items=(value,), is_list=False, num_items=1)
    if not value:
        raise empty_list(field)
    if isinstance(value[0], int):
        return Items(items=(token_ids(value, field),), is_list=False, num_items=1)
    if isinstance(value[0], Message):
        check_all(value, Message, "message", field)
        return one_conversation()
    items = [_item(element, f"{field}[{index}]") for index, element in enumerate(value)]
    texts = tuple(item for item in items if item is not None)
    return Items(
        items=texts, is_list=True, num_items=len(items), has_conversation=len(texts) < len(items)
    )


def _item(element: Element, path: str) -> TextInput | None:
    """A text, ids, or None for a conversation."""
    if isinstance(element, str):
        return element
    if not isinstance(element, list):
        raise validation(f"`{path}`: expected a text or an array of token ids", param=path)
    if element and isinstance(element[0], Message):
        check_all(element, Message, "message", path)
        return None
    return token_ids(element, path)


def token_ids(values: Sequence[object], path: str) -> tuple[int, ...]:
    """An array of ids.

    Raises:
        HttpError: 422 naming the first element that is none.
    """
    check_all(values, int, "token id", path)
    return tuple(value for value in values if isinstance(value, int))


def check_all(values: Sequence[object], kind: type, noun: str, path: str) -> None:
    """Refuse an array of different things.

    Raises:
        HttpError: 422 naming the first element of another kind.
    """
    for index, value in enumerate(values):
        if not isinstance(value, kind):
            place = f"{path}[{index}]"
            raise validation(
                f"`{place}`: expected a {noun} like the elements before it", param=place
            )


def empty_list(field: str) -> HttpError:
    """The 400 for a list without items."""
    return HttpError(ErrorKind.EMPTY, f"`{field}` cannot be empty", param=field)
