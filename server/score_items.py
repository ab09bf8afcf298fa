"""Turns bodies of the scoring routes into items: texts, ids and pairs. Knows nothing of models."""

import msgspec

from infinity_v3.runtime.requests import ClassifyInput, TextPair
from infinity_v3.server.errors import unsupported_task, validation
from infinity_v3.server.items import (
    Items,
    check_all,
    empty_list,
    one_conversation,
    token_ids,
)
from infinity_v3.server.schemas import (
    ClassifyBody,
    Conversation,
    Message,
    PredictElement,
    RoleMessage,
    TextPart,
)

_PAIR_ROLES = ("query", "document")


def parse_predict(value: str | Conversation | list[PredictElement]) -> Items[ClassifyInput]:
    """Tell a text, a pair and ids from a batch of those.

    Raises:
        HttpError: 422 for another form, 400 for an empty list.
    """
    if isinstance(value, str):
        return _single(value)
    if isinstance(value, Conversation):
        _check_messages(value, "inputs")
        return one_conversation()
    if not value:
        raise empty_list("inputs")
    if isinstance(value[0], str | int):
        return _single(_array(value, "inputs"))
    return _batch(value)


def _single(item: ClassifyInput) -> Items[ClassifyInput]:
    return Items(items=(item,), is_list=False, num_items=1)


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


def _batch(values: list[PredictElement]) -> Items[ClassifyInput]:
    found = [_element(value, f"inputs[{index}]") for index, value in enumerate(values)]
    items = tuple(item for item in found if item is not None)
    _check_alike(items)
    return Items(
        items=items, is_list=True, num_items=len(found), has_conversation=len(items) < len(found)
    )


def _element(value: PredictElement, path: str) -> ClassifyInput | None:
    """An item of a batch; None for a conversation."""
    if isinstance(value, Conversation):
        _check_messages(value, path)
        return None
    if not isinstance(value, list):
        raise validation(f"`{path}`: expected an array like the elements before it", param=path)
    if value and isinstance(value[0], Message):
        check_all(value, Message, "message", path)
        return None
    return _array(value, path)


def _check_messages(value: Conversation, path: str) -> None:
    if not value.messages:
        raise empty_list(f"{path}.messages")


def _check_alike(items: tuple[ClassifyInput, ...]) -> None:
    """Texts and ids do not mix; an empty array may be either."""
    kinds = [isinstance(item, tuple) for item in items if item != ()]
    if True in kinds and False in kinds:
        raise validation("`inputs`: expected all texts or all token ids", param="inputs")


def parse_classify(body: ClassifyBody) -> Items[ClassifyInput]:
    """The items of /v1/classify; strings in a list are texts of their own.

    Raises:
        HttpError: 422 for another form, 400 for an empty list, 424 for images.
    """
    if (body.input is msgspec.UNSET) is (body.messages is msgspec.UNSET):
        raise validation("exactly one of `input` and `messages` is required", param="input")
    if not isinstance(body.messages, msgspec.UnsetType):
        return _from_messages(body.messages)
    assert not isinstance(body.input, msgspec.UnsetType), "input was checked; this is a bug"
    return _from_input(body.input)


def _from_input(value: str | list[str | int | list[int]]) -> Items[ClassifyInput]:
    if isinstance(value, str):
        return _single(_stripped(value))
    if not value:
        raise empty_list("input")
    if isinstance(value[0], int):
        return _single(token_ids(value, "input"))
    if isinstance(value[0], str):
        check_all(value, str, "text", "input")
    else:
        check_all(value, list, "array of token ids", "input")
    items = tuple(_item(element) for element in value)
    return Items(items=items, is_list=True, num_items=len(items))


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
    if not halves:
        return one_conversation()
    if len(halves) < 2 or len(messages) > 2:
        raise validation(
            "`messages`: expected a conversation, or one query and one document", param="messages"
        )
    return _single(TextPair(query=_text(halves["query"]), document=_text(halves["document"])))


def _text(message: RoleMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    parts = [part.text for part in message.content if isinstance(part, TextPart)]
    if len(parts) < len(message.content):
        raise unsupported_task("the artifact takes no images")
    return "".join(parts)
