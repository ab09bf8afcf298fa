"""`registry pull --cache` and `registry follow` as processes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from channel_kit import LocalRegistry
from compiled import infinity_compile
from fake_artifact import make_manifest, write_fake_artifact

NAME = make_manifest().name
PULL = ("registry", "pull", NAME)


@pytest.fixture
def registry(tmp_path: Path) -> LocalRegistry:
    registry = LocalRegistry.make(tmp_path / "registry")
    registry.push(write_fake_artifact(tmp_path / "artifact"), "1")
    registry.move(NAME, "1")
    return registry


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "expected --out DIR or --cache DIR, found neither"),
        (("--out", "a", "--cache", "b"), "expected --out DIR or --cache DIR, found both"),
        (("--out", "a", "--if-present"), "--if-present: expected --cache DIR with it, found --out"),
    ],
)
def test_one_place_to_pull_to(options: tuple[str, ...], sentence: str) -> None:
    done = infinity_compile(*PULL, *options)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {sentence}\n")


def test_a_cache_is_filled_once(registry: LocalRegistry, tmp_path: Path) -> None:
    options = ("--registry", registry.location, "--cache", str(tmp_path / "cache"))
    first = infinity_compile(*PULL, *options, "--json")
    assert (first.returncode, first.stderr) == (0, "")
    document = json.loads(first.stdout)
    folder = Path(document.pop("path"))
    assert document == {
        "id": f"sha256:{folder.name}",
        "name": NAME,
        "version": "1",
        "channel": "prod",
        "event": 2,
    }
    inode = (folder / "artifact.json").stat().st_ino
    again = infinity_compile(*PULL, *options)
    assert again.stdout == f"{NAME} 1 {document['id']} (event 2)\n  {folder}\n"
    assert (folder / "artifact.json").stat().st_ino == inode
    (folder / "artifact.json").unlink()
    assert infinity_compile(*PULL, *options).returncode == 0
    assert (folder / "artifact.json").exists()


def test_a_name_that_may_be_none(registry: LocalRegistry, tmp_path: Path) -> None:
    options = ("--registry", registry.location, "--cache", str(tmp_path / "cache"), "--json")
    done = infinity_compile("registry", "pull", "other", *options, "--if-present")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "cache" / "pulled").exists()
    assert infinity_compile("registry", "pull", "other", *options).returncode == 3


def test_a_follower_speaks_at_once_and_ends_with_its_input(
    registry: LocalRegistry, tmp_path: Path
) -> None:
    place = ("--registry", registry.location, "--cache", str(tmp_path / "cache"))
    command = ("registry", "follow", f"{NAME}:prod", *place, "--interval", "0.05", "--until-eof")
    with subprocess.Popen(
        [Path(sys.executable).with_name("infinity-compile"), *command, "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert _next_event(process.stdout) == 2
        registry.move(NAME, "1")
        assert _next_event(process.stdout) == 3
        rest, _ = process.communicate(timeout=20)
    # All that may follow are the words that it lives.
    assert all(set(json.loads(line)) == {"next_within_s"} for line in rest.splitlines())
    assert process.returncode == 0


def _next_event(lines: IO[str]) -> int:
    """The number of the next move that is told of."""
    for line in lines:
        if "event" in (told := json.loads(line)):
            return int(told["event"])
    raise AssertionError("the follower ended without another move")
