"""What a follower of a channel tells, look by look."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from channel_kit import LocalRegistry
from fake_artifact import make_manifest, make_target, write_fake_artifact
from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.registry.open_registry import open_registry
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.compiler.registry.cache_commands import CacheOrder, run_follow
from infinity_v3.compiler.registry.following import (
    MAX_WAIT_S,
    CachedArtifact,
    ChannelFollower,
    Trouble,
)
from infinity_v3.compiler.registry.place import RegistryPlace

INTERVAL_S = 4.0
NAME = make_manifest().name


@pytest.fixture
def registry(tmp_path: Path) -> LocalRegistry:
    """Two versions; the channel points to the first."""
    registry = LocalRegistry.make(tmp_path / "registry")
    for number in (1, 2):
        target = make_target(f"cpu-{number}")
        folder = write_fake_artifact(tmp_path / str(number), {"targets": (target,)})
        registry.push(folder, str(number))
    registry.move(NAME, "1")
    return registry


def follower_of(
    registry: LocalRegistry, cache: Path, opened: Callable[[], Registry] | None = None
) -> ChannelFollower:
    return ChannelFollower(
        opened or (lambda: open_registry(registry.location)),
        Reference(name=NAME, channel="prod"),
        cache,
        INTERVAL_S,
    )


def told(follower: ChannelFollower) -> tuple[str, int | None]:
    news = follower.look()
    assert isinstance(news, CachedArtifact)
    assert (Path(news.path) / "artifact.json").exists()
    assert Path(news.path).name == news.id.removeprefix("sha256:")
    return news.version, news.event


def test_each_move_is_told_once(registry: LocalRegistry, tmp_path: Path) -> None:
    follower = follower_of(registry, tmp_path / "cache")
    assert told(follower) == ("1", 3)
    assert follower.look() is None
    registry.move(NAME, "2")
    assert told(follower) == ("2", 4)
    assert follower.look() is None
    registry.move(NAME, "1")
    registry.move(NAME, "2")
    assert told(follower) == ("2", 6)
    assert follower.wait_s == INTERVAL_S


def test_an_outage_is_told_once_and_its_end(registry: LocalRegistry, tmp_path: Path) -> None:
    is_down = True

    def opened() -> Registry:
        if is_down:
            raise RunFailedError("no network")
        return open_registry(registry.location)

    follower = follower_of(registry, tmp_path / "cache", opened)
    assert follower.look() == Trouble(error="no network", exit_code=1)
    waits = [follower.wait_s]
    for _ in range(6):
        assert follower.look() is None
        waits.append(follower.wait_s)
    assert waits == [8.0, 16.0, 32.0, *[MAX_WAIT_S] * 4]
    is_down = False
    assert told(follower) == ("1", 3)
    assert follower.wait_s == INTERVAL_S
    assert follower.look() is None


def test_damage_is_told_until_it_is_mended(registry: LocalRegistry, tmp_path: Path) -> None:
    follower = follower_of(registry, tmp_path / "cache")
    told(follower)
    (record,) = registry.root.glob(f"names/{NAME}/versions/2.json")
    content = record.read_bytes()
    registry.move(NAME, "2")
    record.unlink()
    trouble = follower.look()
    assert isinstance(trouble, Trouble)
    assert trouble.exit_code == 3
    for _ in range(3):
        assert follower.look() is None
        assert follower.wait_s == INTERVAL_S
    record.write_bytes(content)
    assert told(follower) == ("2", 4)


def test_a_refusal_after_an_outage_is_looked_at_as_often_as_ever(
    registry: LocalRegistry, tmp_path: Path
) -> None:
    follower = follower_of(registry, tmp_path / "cache")
    told(follower)
    away = registry.root.rename(tmp_path / "away")
    for _ in range(3):
        follower.look()
    assert follower.wait_s > INTERVAL_S
    away.rename(registry.root)
    (registry.root / "names" / NAME / "channels" / "prod.json").write_bytes(b"{}")
    trouble = follower.look()
    assert isinstance(trouble, Trouble)
    assert trouble.exit_code == 3
    assert follower.wait_s == INTERVAL_S


def test_a_registry_that_is_not_there_is_away(registry: LocalRegistry, tmp_path: Path) -> None:
    follower = follower_of(registry, tmp_path / "cache")
    told(follower)
    away = registry.root.rename(tmp_path / "away")
    registry.root.mkdir()
    trouble = follower.look()
    assert isinstance(trouble, Trouble)
    assert trouble.exit_code == 1
    assert trouble.error.endswith("registry.json, found none: is the place mounted?")
    assert follower.wait_s == 2 * INTERVAL_S
    registry.root.rmdir()
    assert follower.look() is None
    away.rename(registry.root)
    assert told(follower) == ("1", 3)


def test_a_channel_that_never_was(registry: LocalRegistry, tmp_path: Path) -> None:
    follower = ChannelFollower(
        lambda: open_registry(registry.location),
        Reference(name=NAME, channel="stable"),
        tmp_path / "cache",
        INTERVAL_S,
    )
    trouble = follower.look()
    assert isinstance(trouble, Trouble)
    assert "channels: prod" in trouble.error


def test_a_registry_that_never_was_there_is_away(tmp_path: Path) -> None:
    place = RegistryPlace(registry=str(tmp_path / "none"))
    reference = Reference(name=NAME, channel="prod")
    order = CacheOrder(place=place, reference=reference, cache=tmp_path / "cache")
    with pytest.raises(RunFailedError, match="is the place mounted"):
        order.open_present()
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "registry.json").write_text("{}")
    with pytest.raises(RefusedError):
        order.open_present()


def test_a_word_comes_before_each_pull_and_after_each_look(
    registry: LocalRegistry, tmp_path: Path
) -> None:
    calls: list[object] = []
    follower = ChannelFollower(
        lambda: open_registry(registry.location),
        Reference(name=NAME, channel="prod"),
        tmp_path / "cache",
        INTERVAL_S,
        advance=calls.append,
    )

    def sleep(seconds: float) -> bool:
        calls.append("sleep")
        return calls.count("sleep") < 2

    output = StringIO()
    run_follow(follower, output, sleep, is_json=True, beat=lambda within_s: calls.append(within_s))
    pull, *files, first, _, second, _ = calls
    assert (pull, first, second) == (0, 30.0, 30.0)
    assert len(files) > 0
    assert output.getvalue().count("\n") == 1


def test_lines_appear_at_once(registry: LocalRegistry, tmp_path: Path) -> None:
    output = (tmp_path / "output").open("w", encoding="utf-8")
    seen: list[str] = []

    def sleep(seconds: float) -> bool:
        assert seconds == INTERVAL_S
        seen.append((tmp_path / "output").read_text())
        registry.move(NAME, "2")
        return len(seen) < 2

    with output:
        run_follow(follower_of(registry, tmp_path / "cache"), output, sleep, is_json=False)
    first, second = (text.splitlines() for text in seen)
    assert first[0].startswith(f"{NAME} 1 sha256:")
    assert first[0].endswith(" (event 3)")
    assert second[2].startswith(f"{NAME} 2 sha256:")
