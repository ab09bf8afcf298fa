"""Turns bodies of the scoring routes into items: texts, ids and pairs. Knows nothing of models."""

import msgspec

from infinity_v3.runtime.requests import ClassifyInput, TextPair
from infinity_v3.server.conversations import read_conversation, shows_images, text_parts
from infinity_v3.server.errors import validation
from infinity_v3.server.items import (
    Items,
    all_messages,
    blanks,
    check_all,
    empty_list,
    single,
    token_ids,
)
from infinity_v3.server.schemas import (
    ClassifyBody,
    Conversation,
    Message,
    PredictElement,
    RoleMessage,
)

_PAIR_ROLES = ("query", "document")


def parse_predict(
    value: str | Conversation | list[PredictElement], *, max_items: int
) -> Items[ClassifyInput]:
    """Tell a text, a pair and ids from a batch of those.

    Args:
        value: the field, already of the right types.
        max_items: elements of a longer list are not looked at.

    Raises:
        HttpError: 422 for another form, 400 for an empty list.
    """
    if isinstance(value, str):
        return single(value)
    if isinstance(value, Conversation):
        return single(_element(value, "inputs"), has_images=_shows_images(value))
    if not value:
        raise empty_list("inputs")
    if isinstance(value[0], str | int):
        return single(_array(value, "inputs"))
    if len(value) > max_items:
        return Items(items=blanks(len(value)), is_list=True)
    items = tuple(_element(element, f"inputs[{index}]") for index, element in enumerate(value))
    _check_alike(items)
    return Items(items=items, is_list=True, has_images=any(map(_shows_images, value)))


def _shows_images(value: PredictElement) -> bool:
    messages = value.messages if isinstance(value, Conversation) else value
    return isinstance(messages, list) and shows_images(messages)


def _array(values: list[PredictElement] | list[str | int | Message], path: str) -> ClassifyInput:
    """One array: ids, one text, or two texts that are a pair; an empty one counts as no ids."""
    if not values or isinstance(values[0], int):
        return token_ids(values, path)
    check_all(values, str, "text", path)
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) > 2:
        raise validation(
            f"`{path}`: expected one text or two, found {len(texts)}; several inputs are a list of "
            "lists",
            param=path,
        )
    return texts[0] if len(texts) == 1 else TextPair(query=texts[0], document=texts[1])


def _element(value: PredictElement, path: str) -> ClassifyInput:
    """An item of a batch."""
    if isinstance(value, Conversation):
        if not value.messages:
            raise empty_list(f"{path}.messages")
        return read_conversation(value.messages)
    if not isinstance(value, list):
        raise validation(f"`{path}`: expected an array like the elements before it", param=path)
    if value and isinstance(value[0], Message):
        return read_conversation(all_messages(value, path))
    return _array(value, path)


def _check_alike(items: tuple[ClassifyInput, ...]) -> None:
    """Texts and ids do not mix; an empty array may be either."""
    is_ids = [isinstance(item, tuple) for item in items if item != ()]
    if True in is_ids and False in is_ids:
        raise validation("`inputs`: expected all texts or all token ids", param="inputs")


def parse_classify(body: ClassifyBody, *, max_items: int) -> Items[ClassifyInput]:
    """The items of /v1/classify; strings in a list are texts of their own.

    Args:
        body: the request's.
        max_items: elements of a longer list are not looked at.

    Raises:
        HttpError: 422 for another form, 400 for an empty list.
    """
    if (body.input is msgspec.UNSET) is (body.messages is msgspec.UNSET):
        raise validation("exactly one of `input` and `messages` is required", param="input")
    if not isinstance(body.messages, msgspec.UnsetType):
        return _from_messages(body.messages)
    assert not isinstance(body.input, msgspec.UnsetType), "input was checked; this is a bug"
    return _from_input(body.input, max_items)


def _from_input(value: str | list[str | int | list[int]], max_items: int) -> Items[ClassifyInput]:
    if isinstance(value, str):
        return single(_stripped(value))
    if not value:
        raise empty_list("input")
    if isinstance(value[0], int):
        return single(token_ids(value, "input"))
    if len(value) > max_items:
        return Items(items=blanks(len(value)), is_list=True)
    if isinstance(value[0], str):
        check_all(value, str, "text", "input")
    else:
        check_all(value, list, "array of token ids", "input")
    items = tuple(_item(element) for element in value)
    return Items(items=items, is_list=True)


def _item(element: str | int | list[int]) -> ClassifyInput:
    assert not isinstance(element, int), "elements were checked; this is a bug"
    return _stripped(element) if isinstance(element, str) else tuple(element)


def _stripped(text: str) -> str:
    """On this route a text of blanks is an empty one, which is refused in its turn."""
    return text if text.strip() else ""


def _from_messages(messages: list[RoleMessage]) -> Items[ClassifyInput]:
    if not messages:
        raise empty_list("messages")
    halves = {message.role: message for message in messages if message.role in _PAIR_ROLES}
    has_images = shows_images(messages)
    if not halves:
        return single(read_conversation(messages), has_images=has_images)
    if len(halves) < 2 or len(messages) > 2:
        raise validation(
            "`messages`: expected a conversation, or one query and one document", param="messages"
        )
    query, document = (
        "".join(text_parts(message)) for message in (halves["query"], halves["document"])
    )
    return single(TextPair(query=query, document=document), has_images=has_images)
