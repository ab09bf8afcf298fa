"""Pulled artifacts that are used, and those that nobody uses any more."""

from pathlib import Path

import pytest

from fake_artifact import write_fake_artifact
from infinity_v3.server.pulled import ArtifactUse, PulledArtifact, remove_unused


@pytest.fixture
def pulled(tmp_path: Path) -> PulledArtifact:
    path = write_fake_artifact(tmp_path / "pulled" / ("0" * 64))
    path.with_name(f"{path.name}.sig").write_text("{}")
    return PulledArtifact(path=path, id="sha256:" + "0" * 64, name="tiny", version="1", event=4)


def test_what_is_used_stays(pulled: PulledArtifact) -> None:
    uses = [ArtifactUse(pulled) for _ in range(2)]
    assert all(use.begin() for use in uses)
    for use in uses:
        assert not remove_unused(pulled)
        assert (pulled.path / "artifact.json").exists()
        use.end()
        use.end()
    assert remove_unused(pulled)
    assert [path.name for path in pulled.path.parent.iterdir()] == [f".{pulled.path.name}.use"]


def test_what_was_removed_is_not_used(pulled: PulledArtifact) -> None:
    assert remove_unused(pulled)
    use = ArtifactUse(pulled)
    assert not use.begin()
    assert not remove_unused(pulled)  # there is nothing
    write_fake_artifact(pulled.path)
    assert use.begin()
    use.end()


def test_how_it_is_shown(pulled: PulledArtifact) -> None:
    assert pulled.shown == f"tiny version 1 {pulled.id}, event 4"
