"""A full disk is recognised behind whatever it was wrapped in, and nothing else is."""

import errno
import os
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RunFailedError, UsageError
from infinity_v3.compiler.disk_full import full_disk_as_one_sentence, is_disk_full

OUT = Path("/shelf/artifact")


def full(path: str | None = None) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def wrapped(inner: Exception, outer: Exception, *, hide: bool = False) -> Exception:
    try:
        try:
            raise inner
        except Exception as error:
            raise outer from (None if hide else error)
    except Exception as error:
        return error


@pytest.mark.parametrize(
    "error",
    [
        full(),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        wrapped(full(), RuntimeError("code generation failed")),
        wrapped(full(), RuntimeError("code generation failed"), hide=True),
        RuntimeError("as: can't write 13 bytes to section .text: 'No space left on device'\nmore"),
        wrapped(full(), RunFailedError("the C++ compiler failed; its last lines:\nx")),
    ],
)
def test_a_full_disk_is_one_sentence(error: Exception) -> None:
    with pytest.raises(RunFailedError) as caught, full_disk_as_one_sentence(OUT):
        raise error
    assert str(caught.value).startswith(f"cannot write {OUT}: no space left on device; ")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        wrapped(full(), RunFailedError("cannot write /a/b: no space left on device")),
        UsageError("a sentence"),
        ZeroDivisionError("a bug"),
        OSError(errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_anything_else_passes_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, full_disk_as_one_sentence(OUT):
        raise error
    assert caught.value is error


def test_a_loop_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_disk_full(first)
