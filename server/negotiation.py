"""Reads the headers that choose formats: Content-Type, Content-Encoding, Accept, Accept-Encoding.

Knows nothing of documents or bodies.
"""

from collections.abc import Iterator
from enum import Enum

from infinity_v3.server.errors import HttpError, HttpErrorKind

JSON_TYPE = "application/json"
MSGPACK_TYPES = (
    "application/msgpack",
    "application/x-msgpack",
    "application/messagepack",
    "application/vnd.msgpack",
)
ACCEPTED_CODINGS = "gzip, zstd"


class Coding(str, Enum):
    """A content coding."""

    IDENTITY = "identity"
    GZIP = "gzip"
    ZSTD = "zstd"


def request_media_type(header: str | None) -> str:
    """Media type of a request body.

    Raises:
        HttpError: 415 for anything but JSON in UTF-8 and MessagePack.
    """
    if header == JSON_TYPE:
        return JSON_TYPE
    media_type, _, parameters = (header or "").partition(";")
    media_type = media_type.strip().lower()
    if media_type in MSGPACK_TYPES:
        return media_type
    if media_type == JSON_TYPE and _is_utf8(parameters):
        return media_type
    found = f"found {header!r}" if header else "none was given"
    raise HttpError(
        HttpErrorKind.UNSUPPORTED_MEDIA_TYPE,
        f"Content-Type must be application/json (UTF-8) or application/msgpack; {found}",
    )


def _is_utf8(parameters: str) -> bool:
    for parameter in parameters.lower().split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in {"utf-8", "utf8"}:
            return False
    return True


def request_coding(header: str | None) -> Coding:
    """Content coding of a request body.

    Raises:
        HttpError: 415 for other or stacked codings.
    """
    if header is None:
        return Coding.IDENTITY
    coding = (header or "identity").strip().lower()
    codings = {"identity": Coding.IDENTITY, "gzip": Coding.GZIP, "x-gzip": Coding.GZIP}
    codings["zstd"] = Coding.ZSTD
    if coding not in codings:
        raise HttpError(
            HttpErrorKind.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Encoding must be one of {ACCEPTED_CODINGS} or identity; found {header!r}",
            headers=(("accept-encoding", ACCEPTED_CODINGS),),
        )
    return codings[coding]


def _weighted(header: str) -> Iterator[tuple[str, float]]:
    """(name, quality) of each element; an unreadable quality counts as 0."""
    for element in header.lower().split(","):
        name, *parameters = (part.strip() for part in element.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.replace(" ", "").startswith("q="):
                quality = _quality(parameter.partition("=")[2])
        if name:
            yield name, quality


def _quality(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0.0 <= value <= 1.0 else 0.0


def reply_media_type(accept: str | None) -> str:
    """JSON, or the MessagePack type that the client names with a quality no lower than JSON's.

    JSON's quality may stand at a range that it is in.
    """
    if accept is None or "pack" not in accept.lower():
        return JSON_TYPE
    qualities = dict(_weighted(accept))
    best = max(MSGPACK_TYPES, key=lambda name: qualities.get(name, 0.0))
    quality = qualities.get(best, 0.0)
    ranges = (JSON_TYPE, "application/*", "*/*")
    of_json = next((qualities[name] for name in ranges if name in qualities), 0.0)
    return best if quality > 0.0 and quality >= of_json else JSON_TYPE


def reply_coding(accept_encoding: str | None) -> Coding:
    """The coding that the client likes best; of equals, Zstandard before gzip before none."""
    if not accept_encoding:
        return Coding.IDENTITY
    qualities = dict(_weighted(accept_encoding))
    anything = qualities.get("*", 0.0)
    gzip = max(qualities.get("gzip", anything), qualities.get("x-gzip", 0.0))
    offered = {Coding.ZSTD: qualities.get("zstd", anything), Coding.GZIP: gzip}
    best = max(offered, key=offered.__getitem__)
    # What is not named is allowed, but liked least.
    identity = qualities.get("identity", 0.0)
    return best if offered[best] > 0.0 and offered[best] >= identity else Coding.IDENTITY
