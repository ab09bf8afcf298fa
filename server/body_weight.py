"""How much memory a document may take, and how much is in it, told from its bytes.

What grows most is small lists and objects: a byte of MessagePack becomes a hundred bytes of memory.
They are counted before anything is built. Knows nothing of fields.
"""

import re

import msgspec

from infinity_v3.server.codec import MAX_DEPTH, too_deep
from infinity_v3.server.errors import HttpError, HttpErrorKind, malformed
from infinity_v3.server.negotiation import JSON_TYPE

MAX_VALUES = 1_000_000
"""Lists and objects of one body: a million are built within a fifth of a second."""
_LIST_BYTES = 96
_OBJECT_BYTES = 240
_NUMBER_BYTES = 40
_JSON_FACTOR = 8
_MSGPACK_FACTOR = 16
# Whole runs between escapes: a step of the matcher for each of them, not for each byte. A text that
# never ends is one, too: else the matcher would look for its end again from each quote in it.
_JSON_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_OBJECTS = bytes((*range(0x80, 0x90), 0xDE, 0xDF))
_LISTS = bytes((*range(0x90, 0xA0), 0xDC, 0xDD))
_CONTAINERS = _OBJECTS + _LISTS
_COUNT_BYTES = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_NEGATIVE_NUMBERS = bytes(range(0xE0, 0xFB))
"""Of one byte; Python keeps those from -5 on ready."""


def weight_bytes(body: bytes, media_type: str) -> int:
    """Memory that the document takes at most, and texts beyond Latin script seldom reach."""
    objects, lists = _most_containers(body, media_type)
    # More of them are never built.
    objects = min(objects, MAX_VALUES)
    lists = min(lists, MAX_VALUES - objects)
    weight = objects * _OBJECT_BYTES + lists * _LIST_BYTES
    if media_type == JSON_TYPE:
        return weight + len(body) * _JSON_FACTOR + body.count(b",") * _NUMBER_BYTES
    negative = _count(body, _NEGATIVE_NUMBERS) * _NUMBER_BYTES
    return weight + len(body) * _MSGPACK_FACTOR + negative


def refuse_crowded(body: bytes, media_type: str) -> None:
    """Refuse a document of too many lists and objects.

    Raises:
        HttpError: 413, or 400 where a MessagePack document breaks off or has other keys than texts.
    """
    if sum(_most_containers(body, media_type)) <= MAX_VALUES:
        return
    # Texts may hold what looks like lists: look again, at what stands outside them.
    if media_type == JSON_TYPE:
        is_crowded = sum(_most_containers(_JSON_TEXT.sub(b"", body), media_type)) > MAX_VALUES
    else:
        is_crowded = _has_many_values(body)
    if is_crowded:
        raise too_crowded(MAX_VALUES)


def refuse_many_members(body: bytes, most: int) -> None:
    """Refuse a JSON document whose lists and objects have too many members, itself included.

    Raises:
        HttpError: 413.
    """
    if _most_members(body) > most and _most_members(_JSON_TEXT.sub(b"", body)) > most:
        raise too_crowded(most)


def _most_members(body: bytes) -> int:
    """Each container opens once, and a comma stands before every member but the first."""
    return sum(_most_containers(body, JSON_TYPE)) + body.count(b",")


def too_crowded(most: int) -> HttpError:
    """The refusal of a document that holds too much."""
    return HttpError(
        HttpErrorKind.PAYLOAD_TOO_LARGE,
        f"the request body holds more than {most} lists, objects and their members; send it in "
        "parts",
    )


def _most_containers(body: bytes, media_type: str) -> tuple[int, int]:
    """How many objects and lists there are at most."""
    if media_type == JSON_TYPE:
        return body.count(b"{"), body.count(b"[")
    return _count(body, _OBJECTS), _count(body, _LISTS)


def _count(body: bytes, kinds: bytes) -> int:
    """How many bytes are one of `kinds`."""
    return len(body) - len(body.translate(None, kinds))


def _has_many_values(body: bytes) -> bool:
    """Walk through a MessagePack document without building it."""
    level, num_values = [body], 0
    for _ in range(MAX_DEPTH):
        following: list[bytes] = []
        for part in level:
            num_values += _announced_values(part)
            if num_values > MAX_VALUES:
                return True
            following += [child for child in _members(part) if child[0] in _CONTAINERS]
        level = following
        if not level:
            return False
    raise too_deep()


def _announced_values(part: bytes) -> int:
    """How many members a list or an object says it has; 0 for everything else."""
    kind = part[0]
    if kind not in _CONTAINERS:
        return 0
    if kind in _COUNT_BYTES:
        return int.from_bytes(part[1 : 1 + _COUNT_BYTES[kind]], "big")
    return kind & 0x0F


def _members(part: bytes) -> list[bytes]:
    if part[0] not in _CONTAINERS:
        return []
    try:
        if part[0] in _OBJECTS:
            members = list(msgspec.msgpack.decode(part, type=dict[str, msgspec.Raw]).values())
        else:
            members = msgspec.msgpack.decode(part, type=list[msgspec.Raw])
    except RecursionError:
        raise too_deep() from None
    except msgspec.ValidationError:
        raise malformed("map keys must be strings") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed(f"the body is not valid MessagePack: {error}") from None
    return [bytes(member) for member in members]
