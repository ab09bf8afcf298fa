"""Where the user's cache lies, with and without a home."""

import pwd
from pathlib import Path

import pytest

from infinity_v3.artifacts.user_cache import user_cache


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, Path("/c/infinity_v3")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, Path("/h/.cache/infinity_v3")),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, Path("/h/.cache/infinity_v3")),
        ({"HOME": "/h"}, Path("/h/.cache/infinity_v3")),
        ({"HOME": ""}, None),
    ],
)
def test_it_follows_the_environment(environ: dict[str, str], expected: Path | None) -> None:
    assert user_cache(environ) == expected


def test_without_a_variable_the_user_database_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = pwd.struct_passwd(("name", "x", 1, 1, "", "/recorded", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: recorded)
    assert user_cache({}) == Path("/recorded/.cache/infinity_v3")


def test_a_user_whom_nobody_knows_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert user_cache({}) is None
