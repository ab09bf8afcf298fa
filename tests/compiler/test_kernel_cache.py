"""Where kernel libraries are kept, and what happens where they cannot be."""

import io
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.kernel_cache import check_kernel_cache, kernel_cache
from infinity_v3.compiler.progress import PlainProgress


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Something below which no directory can be made, not even by root."""
    path = tmp_path / "file"
    path.write_text("")
    return path


def test_the_default_place_is_used_where_it_can_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    stream = io.StringIO()
    with kernel_cache(None, PlainProgress(stream)) as cache:
        assert cache == tmp_path / "new" / "infinity_v3" / "kernels"
    assert stream.getvalue() == ""


def test_a_named_place_holds_in_every_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with kernel_cache(Path("named"), PlainProgress(io.StringIO())) as cache:
        assert cache == tmp_path / "named"


def test_without_a_default_place_the_cache_is_private_and_goes_away(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(file / "home"))
    stream = io.StringIO()
    with kernel_cache(None, PlainProgress(stream)) as cache:
        cache.mkdir()
        assert cache.parent.stat().st_mode & 0o777 == 0o700
    assert not cache.parent.exists()
    assert stream.getvalue().startswith(f"warning: {file / 'home'}")
    assert stream.getvalue().count("\n") == 1


def test_a_named_place_that_cannot_be_made_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match=rf"^--kernel-cache: .*{file} is no directory"):
        check_kernel_cache(file / "k")


def test_a_named_place_is_not_made_by_the_check(tmp_path: Path) -> None:
    check_kernel_cache(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
