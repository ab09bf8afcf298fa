"""Checks of one request before any work is spent on it, and the errors they raise.

Knows nothing of queues.
"""

from collections.abc import Mapping, Sequence

from infinity_v3.runtime.errors import ITEMS_FIELD, ErrorKind, InferenceError
from infinity_v3.runtime.requests import ClassifyInput, Conversation, TextPair

MAX_MESSAGES = 1024
"""Templates may go over all messages for each of them."""


def check_items(items: Sequence[ClassifyInput], *, has_prompt_name: bool) -> None:
    """Refuse an empty list, and the first item that is empty, not Unicode or cannot take a prompt.

    Raises:
        InferenceError: EMPTY or VALIDATION, with the item's position.
    """
    check_count(len(items))
    for position, item in enumerate(items):
        _check_item(item, position)
        if has_prompt_name and not isinstance(item, str):
            raise prompt_refused(_NOUNS[type(item)], position)


_NOUNS: Mapping[type, str] = {
    TextPair: "dual inputs",
    Conversation: "conversations",
    tuple: "token ids",
}


def _check_item(item: ClassifyInput, position: int) -> None:
    if isinstance(item, TextPair):
        check_pair(item, position)
    elif isinstance(item, Conversation):
        check_conversation(item, position)
    elif not item:
        raise empty_item(position)
    elif isinstance(item, str):
        check_text(item, position)


def check_count(num_items: int) -> None:
    """Refuse an empty list.

    Raises:
        InferenceError: EMPTY.
    """
    if num_items == 0:
        message = f"`{ITEMS_FIELD}` cannot be empty"
        raise InferenceError(ErrorKind.EMPTY, "empty_input", message, field=ITEMS_FIELD)


def check_pair(pair: TextPair, position: int) -> None:
    """Refuse two empty texts, and what is not valid Unicode.

    Raises:
        InferenceError: EMPTY or VALIDATION.
    """
    if not pair.query and not pair.document:
        raise empty_item(position)
    check_text(pair.query, position)
    check_text(pair.document, position)


def check_conversation(conversation: Conversation, position: int) -> None:
    """Refuse a conversation of no or too many messages, and what is not valid Unicode.

    Raises:
        InferenceError: EMPTY or VALIDATION.
    """
    if not conversation.messages:
        raise empty_item(position)
    if len(conversation.messages) > MAX_MESSAGES:
        message = f"`{ITEMS_FIELD}` must have at most {MAX_MESSAGES} messages per conversation"
        raise invalid_value(message, position, field=ITEMS_FIELD)
    for text in conversation.texts:
        check_text(text, position)


def check_text(text: str, position: int | None, *, field: str = ITEMS_FIELD) -> None:
    """Refuse a text that is not valid Unicode.

    Raises:
        InferenceError: VALIDATION, code invalid_value.
    """
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"`{field}` holds a lone surrogate at character {error.start}; send valid Unicode"
        raise invalid_value(message, position, field=field) from None


def check_dimensions(dimensions: int | None, width: int) -> None:
    """Refuse a cut that is not within 1 .. width.

    Raises:
        InferenceError: VALIDATION, code invalid_dimensions.
    """
    if dimensions is None or 1 <= dimensions <= width:
        return
    if dimensions < 1:
        message = f"`dimensions` should be positive. Given: {dimensions}"
    else:
        message = (
            "`dimensions` should be smaller than the maximum embedding dimension: "
            f"1 to {width} are possible. Given: {dimensions}"
        )
    raise InferenceError(ErrorKind.VALIDATION, "invalid_dimensions", message, field="dimensions")


def check_document_tokens(max_document_tokens: int | None) -> None:
    """Refuse a length of documents below one.

    Raises:
        InferenceError: VALIDATION, code invalid_value.
    """
    if max_document_tokens is not None and max_document_tokens < 1:
        message = f"tokens per document should be at least 1. Given: {max_document_tokens}"
        raise invalid_value(message, None, field="max_tokens_per_doc")


def check_max_tokens(max_tokens: int | None, limit: int) -> None:
    """Refuse a truncation length that is not within 1 .. limit.

    Raises:
        InferenceError: VALIDATION, code invalid_value.
    """
    if max_tokens is not None and not 1 <= max_tokens <= limit:
        message = f"tokens per input should be 1 to {limit}. Given: {max_tokens}"
        raise invalid_value(message, None, field=None)


def check_ids(ids: Sequence[int], vocab_size: int, position: int) -> None:
    """Refuse ids that the model has no embedding for.

    Raises:
        InferenceError: VALIDATION, code invalid_token_id, naming place and vocabulary size.
    """
    if min(ids) >= 0 and max(ids) < vocab_size:
        return
    place, token_id = next((n, i) for n, i in enumerate(ids) if not 0 <= i < vocab_size)
    raise InferenceError(
        ErrorKind.VALIDATION,
        "invalid_token_id",
        f"`{ITEMS_FIELD}` token id {token_id} at position {place} is not within 0 and "
        f"{vocab_size - 1}: the vocabulary size is {vocab_size}",
        item=position,
        field=ITEMS_FIELD,
    )


def check_id_lists(id_lists: Sequence[Sequence[int]]) -> None:
    """Refuse an empty list, and the first empty list of ids.

    Raises:
        InferenceError: EMPTY.
    """
    if id_lists and all(id_lists):
        return
    position = next((index for index, ids in enumerate(id_lists) if not ids), None)
    message = "`input_ids` cannot be empty"
    raise InferenceError(ErrorKind.EMPTY, "empty_input", message, item=position, field=ITEMS_FIELD)


def empty_item(position: int) -> InferenceError:
    message = f"Input validation error: `{ITEMS_FIELD}` cannot be empty"
    return InferenceError(ErrorKind.EMPTY, "empty_input", message, item=position, field=ITEMS_FIELD)


def prompt_refused(what: str, position: int | None) -> InferenceError:
    """Build the error for a named prompt where none can be put in front."""
    return invalid_value(f"`prompt_name` cannot be set with {what}", position, field="prompt_name")


def invalid_value(message: str, position: int | None, *, field: str | None) -> InferenceError:
    return InferenceError(
        ErrorKind.VALIDATION, "invalid_value", message, item=position, field=field
    )


def too_long(limit: int, found: int, unit: str, position: int) -> InferenceError:
    """Build the error for an input that may not be cut; `unit` is "tokens" or "characters"."""
    message = f"`{ITEMS_FIELD}` must have less than {limit} {unit}. Given: {found}"
    return InferenceError(
        ErrorKind.VALIDATION, "input_too_long", message, item=position, field=ITEMS_FIELD
    )


def too_many_tokens(limit: int) -> InferenceError:
    """Build the error for texts that are too long together."""
    message = f"`{ITEMS_FIELD}` have more than {limit} tokens in all; send them in parts"
    return InferenceError(ErrorKind.VALIDATION, "input_too_long", message, field=ITEMS_FIELD)
