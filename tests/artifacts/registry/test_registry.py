"""The life of an artifact, the same at every kind of place."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.registry.marker import check_registry, create_registry
from infinity_v3.artifacts.registry.open_registry import open_registry
from infinity_v3.artifacts.registry.records import EventKind
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.seen_events import SeenEvents
from infinity_v3.artifacts.registry.storage import RegistryStorage
from registries import ACTOR, NAME, POLICY, damage_of, fake, new_key, promote, push, resolve


def test_the_life_of_an_artifact(storage: RegistryStorage, tmp_path: Path) -> None:
    signer, verifier = new_key()
    create_registry(storage, POLICY)
    registry = Registry(storage, verifier=verifier, seen=SeenEvents(tmp_path / "seen"))
    for version in ("1", "2"):
        push(registry, tmp_path, version, signer=signer)
        promote(registry, version, signer=signer)
    pulled = registry.pull(resolve(registry, NAME), tmp_path / "two")
    assert pulled.artifact_id == fake(tmp_path, "2").artifact_id

    version, _ = registry.places_before(NAME, "prod")[-1]
    promote(registry, version, kind=EventKind.ROLLBACK, signer=signer)
    registry.retire(NAME, "2", actor=ACTOR)
    report = registry.collect_garbage(grace_s=0.0, is_dry_run=False)
    # The manifest, and the signature of the version.
    assert len(report.removed) == 2

    again = Registry(storage, verifier=verifier, seen=SeenEvents(tmp_path / "seen"))
    pulled = again.pull(resolve(again, NAME), tmp_path / "one")
    assert pulled.artifact_id == fake(tmp_path, "1").artifact_id
    assert [event.kind.value for event in again.events(NAME)] == [
        *("push", "promote", "push", "promote", "rollback", "retire")
    ]
    assert damage_of(again) == {}


def test_a_place_becomes_a_registry_once(storage: RegistryStorage) -> None:
    with pytest.raises(RefusedError, match=r"expected a registry with registry\.json, found none"):
        check_registry(storage)
    create_registry(storage, POLICY)
    check_registry(storage)
    with pytest.raises(UsageError, match="expected a place without a registry, found one"):
        create_registry(storage, "other")
    assert storage.read("policy.toml") == POLICY.encode()


def test_a_registry_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "registry.json").write_text('{"format":"infinity-registry","format_version":2}\n')
    with pytest.raises(RefusedError, match=r"registry 1, found infinity-registry 2"):
        open_registry(str(tmp_path))
