"""Recognises a full disk behind the errors that libraries and compilers wrap it in."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infinity_v3.artifacts.errors import InfinityError, RunFailedError

_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
# A compiler started as a process can say it in words only.
_WORDS = tuple(os.strerror(number).lower() for number in sorted(_ERRNOS))


@contextmanager
def full_disk_as_one_sentence(out: Path) -> Iterator[None]:
    """Let any failure of the body that comes of a full disk leave as one sentence about `out`.

    Raises:
        RunFailedError: the disk is full.
    """
    try:
        yield
    except Exception as error:
        if not is_disk_full(error) or _is_one_sentence(error):
            raise
        raise RunFailedError(
            f"cannot write {out}: no space left on device; a compile needs room beside it and in "
            f"{tempfile.gettempdir()}; free some and run again"
        ) from error


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, or one that led to it, says that a disk or a quota is used up."""
    return any(_says_full(link) for link in _chain(error))


def _says_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _ERRNOS:
        return True
    text = str(error).lower()
    return any(words in text for words in _WORDS)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _is_one_sentence(error: BaseException) -> bool:
    return isinstance(error, InfinityError) and "\n" not in str(error)
