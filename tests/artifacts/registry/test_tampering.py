"""Every class of bytes, changed behind a registry's back: pull and fsck say which file it was."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.ed25519 import Ed25519Signer, Ed25519Verifier
from infinity_v3.artifacts.registry.fsck import FsckOrder
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.seen_events import SeenEvents
from registries import NAME, fake, files_below, new_key, new_registry, promote, push, resolve

PROD = paths.channel(NAME, "prod")
VERSION = paths.version(NAME, "1")


class Scene:
    """A registry with versions 1 and 2, both signed; prod pointed to 1 and points to 2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "registry"
        self.signer: Ed25519Signer
        self.verifier: Ed25519Verifier
        self.signer, self.verifier = new_key()
        registry = new_registry(self.place)
        for version in ("1", "2"):
            push(registry, folder, version, signer=self.signer)
            promote(registry, version, signer=self.signer)
        self.ids = {version: fake(folder, version).artifact_id for version in ("1", "2")}

    @property
    def strict(self) -> Registry:
        """The registry as someone sees it who has not read it yet and asks for signatures."""
        seen = SeenEvents(self.folder / "seen")
        return Registry(LocalStorage(self.place), verifier=self.verifier, seen=seen)

    def pull(self, reference: str = NAME) -> None:
        """Pull and throw away."""
        registry = self.strict
        out = self.folder / "out"
        registry.pull(resolve(registry, reference), out)
        shutil.rmtree(out)
        out.with_name("out.sig").unlink()

    def damage(self) -> dict[str, str]:
        report = self.strict.fsck(FsckOrder(verifier=self.verifier))
        return {finding.path: finding.problem for finding in report.damage}

    def edit(self, path: str, before: str, after: str) -> None:
        file = self.place / path
        text = file.read_text()
        assert before in text
        file.write_text(text.replace(before, after))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def a_blob(scene: Scene) -> str:
    files = fake(scene.folder, "2").manifest.files
    return paths.blob(next(entry.sha256 for entry in files if entry.path.endswith("model.so")))


def change_blob(scene: Scene) -> str:
    path = a_blob(scene)
    data = (scene.place / path).read_bytes()
    (scene.place / path).write_bytes(bytes([data[0] ^ 1]) + data[1:])
    return path


def change_manifest(scene: Scene) -> str:
    path = paths.manifest(scene.ids["2"])
    scene.edit(path, '"license":null', '"license":"mit"')
    return path


def swap_manifests(scene: Scene) -> str:
    path = paths.manifest(scene.ids["2"])
    shutil.copy(scene.place / paths.manifest(scene.ids["1"]), scene.place / path)
    return path


def change_version(scene: Scene) -> str:
    path = paths.version(NAME, "2")
    scene.edit(path, scene.ids["2"], scene.ids["1"])
    return path


def number_version_otherwise(scene: Scene) -> str:
    path = paths.version(NAME, "2")
    scene.edit(path, '"event":3', '"event":1')
    return path


def point_channel_elsewhere(scene: Scene) -> str:
    scene.edit(PROD, scene.ids["2"], scene.ids["1"])
    return PROD


def point_channel_to_no_event(scene: Scene) -> str:
    scene.edit(PROD, '"event":4', '"event":9')
    return PROD


def cut_log_off(scene: Scene) -> str:
    (scene.place / paths.event(NAME, 4)).unlink()
    return PROD


def break_log(scene: Scene) -> str:
    path = paths.event(NAME, 3)
    (scene.place / path).unlink()
    return path


def change_last_event(scene: Scene) -> str:
    """With the channel's file made to fit: only the signature tells."""
    path = paths.event(NAME, 4)
    for file in (path, PROD):
        scene.edit(file, scene.ids["2"], scene.ids["1"])
        scene.edit(file, '"version":"2"', '"version":"1"')
    return path


def change_actor(scene: Scene) -> str:
    path = paths.event(NAME, 4)
    scene.edit(path, f'"actor":"{scene.signer.key_id}"', '"actor":"deadbeefdeadbeef"')
    return path


def sign_event_with_rubbish(scene: Scene) -> str:
    path = paths.event(NAME, 4)
    text = (scene.place / path).read_text()
    (scene.place / path).write_text(re.sub(r'"signature":"[^"]+"', '"signature":"AAAA"', text))
    return path


def change_signature(scene: Scene) -> str:
    path = paths.signature(NAME, "2", scene.signer.key_id)
    data = (scene.place / path).read_bytes()
    (scene.place / path).write_bytes(bytes([data[0] ^ 1]) + data[1:])
    return path


def cut_signature(scene: Scene) -> str:
    path = paths.signature(NAME, "2", scene.signer.key_id)
    (scene.place / path).write_bytes(b"short")
    return path


def copy_signature(scene: Scene) -> str:
    """A true signature, of another version."""
    path = paths.signature(NAME, "2", scene.signer.key_id)
    shutil.copy(scene.place / paths.signature(NAME, "1", scene.signer.key_id), scene.place / path)
    return path


CHANGES = (
    change_blob,
    change_manifest,
    swap_manifests,
    change_version,
    number_version_otherwise,
    point_channel_elsewhere,
    point_channel_to_no_event,
    cut_log_off,
    break_log,
    change_last_event,
    change_actor,
    sign_event_with_rubbish,
    change_signature,
    cut_signature,
    copy_signature,
)


def test_the_scene_is_whole(scene: Scene) -> None:
    scene.pull()
    assert scene.damage() == {}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_is_refused_by_pull_and_named_by_fsck(
    scene: Scene, change: Callable[[Scene], str]
) -> None:
    path = change(scene)
    with pytest.raises(RefusedError) as refusal:
        scene.pull()
    assert list(scene.damage()) == [path]
    if change not in (change_signature, copy_signature):  # there, the folder of signatures is named
        assert path in str(refusal.value)
    assert list(scene.folder.glob("out*")) == []


def test_an_early_event_that_was_changed_breaks_the_chain(scene: Scene) -> None:
    scene.edit(paths.event(NAME, 1), '"actor":"', '"actor":"x')
    assert list(scene.damage()) == [paths.event(NAME, 2)]
    assert "one of the two was changed" in scene.damage()[paths.event(NAME, 2)]


def test_every_single_file_that_is_lost_is_named(scene: Scene) -> None:
    for file in list(files_below(scene.place)):
        path = str(file.relative_to(scene.place))
        if path == paths.MARKER or "/versions/1.sig/" in path or "/versions/2.sig/" in path:
            continue  # no registry without the one; a signature may be absent
        data = file.read_bytes()
        file.unlink()
        # The last event is told by what points to it, a channel's file by the log itself.
        expected = {paths.event(NAME, 4): PROD}.get(path, path)
        if path == PROD:
            assert scene.damage() == {}
        else:
            assert expected in scene.damage(), path
        file.write_bytes(data)
    assert scene.damage() == {}


def test_an_old_state_that_is_put_back_is_refused_where_a_newer_one_was_seen(
    scene: Scene,
) -> None:
    """Everything in it is signed and fits together; only who saw more knows."""
    old = scene.folder / "old"
    shutil.copytree(scene.place, old)
    promote(Registry(LocalStorage(scene.place)), "1", signer=scene.signer)
    scene.pull()

    shutil.rmtree(scene.place)
    old.rename(scene.place)
    assert scene.damage() == {}
    with pytest.raises(RefusedError) as refusal:
        scene.pull()
    assert (
        f"{NAME}:prod is at event 4, but event 5 was seen before: the registry was turned back"
        in str(refusal.value)
    )
    scene.pull(f"{NAME}==1")


def test_an_old_signed_event_under_a_new_number_is_refused(scene: Scene) -> None:
    """Whoever can write, but has no key, appends the promotion of 1 again."""
    old = (scene.place / paths.event(NAME, 2)).read_text()
    promote(Registry(LocalStorage(scene.place)), "1")
    fifth = paths.event(NAME, 5)
    signature = re.search(r'"signature":\{[^}]+\}', old)
    assert signature is not None
    scene.edit(fifth, '"signature":null', signature[0])
    scene.edit(fifth, '"actor":"unverified:test"', f'"actor":"{scene.signer.key_id}"')
    with pytest.raises(RefusedError, match=rf"{fifth}: .* that does not fit this event"):
        scene.pull()
    assert list(scene.damage()) == [fifth]


def test_an_unsigned_move_in_the_name_of_a_key_is_damage(scene: Scene) -> None:
    promote(Registry(LocalStorage(scene.place)), "1")
    fifth = paths.event(NAME, 5)
    scene.edit(fifth, '"actor":"unverified:test"', f'"actor":"{scene.signer.key_id}"')
    assert list(scene.damage()) == [fifth]
    assert "expected as its actor unverified:<user>, unsigned" in scene.damage()[fifth]


def test_an_unsigned_move_is_refused_where_signatures_are_asked_for(scene: Scene) -> None:
    promote(Registry(LocalStorage(scene.place)), "1")
    assert resolve(Registry(LocalStorage(scene.place)), NAME).version == "1"
    with pytest.raises(RefusedError, match=r"0000000005\.json: .* found no signature; move the"):
        scene.pull()


@pytest.mark.parametrize(
    "path",
    [
        "names/no name",
        f"names/{NAME}/log/11.json",
        f"names/{NAME}/versions/readme.txt",
        "blobs/sha256/readme.txt",
        "artifacts/sha256/readme.txt",
        f"names/{NAME}/versions/1.sig/readme.txt",
    ],
)
def test_files_that_nobody_wrote_are_named(scene: Scene, path: str) -> None:
    file = scene.place / path
    file.write_text("?")
    assert path in scene.damage()


def test_links_and_odd_files_do_not_end_the_check(scene: Scene) -> None:
    """Each is named, and so is damage that comes behind it."""
    elsewhere = scene.folder / "elsewhere"
    elsewhere.mkdir()
    linked = (VERSION, PROD, f"names/{NAME}/versions/2.sig", "names/linked", "leases")
    for path in linked:
        file = scene.place / path
        if file.is_dir():
            shutil.rmtree(file)
        file.unlink(missing_ok=True)
        file.symlink_to(elsewhere)
    (scene.place / "names/readme").write_text("?")
    blob = change_blob(scene)
    damage = scene.damage()
    expected = {path if path != "names/linked" else "names/linked/log" for path in linked}
    assert expected.union({"names/readme", blob}) <= set(damage)
