"""What is found to be built already: in a registry, in the out folder, and what contradicts it."""

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from build_plans import KEY, TARGET, make_entry, write_built
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.ed25519 import Ed25519Signer
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.marker import create_registry
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.compiler.builds.build_key import ToolState
from infinity_v3.compiler.builds.entry import GateBounds, ModelEntry
from infinity_v3.compiler.builds.plan import ModelPlan, Planner
from infinity_v3.compiler.builds.published import find_published
from infinity_v3.compiler.progress import SilentProgress

OTHER_KEY = "f" * 64
TOOL = ToolState(release="3.0.0", torch="2.13", transformers="5.24", arch="x86_64", kernel_abi="3")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    storage = LocalStorage(tmp_path / "registry")
    create_registry(storage, "")
    return Registry(storage)


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"c")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def push(registry: Registry, folder: Path, version: str, key: str | None) -> str:
    artifact = write_built(folder / version, key=key)
    return registry.push(artifact, version, actor="unverified:test").id


def planner(tmp_path: Path, registry: Registry | None = None) -> Planner:
    return Planner(out=tmp_path / "out", registry=registry, tool=TOOL, progress=SilentProgress())


def entry_of(checkpoint: Path, **overrides: object) -> ModelEntry:
    return make_entry(str(checkpoint), request={"targets": (TARGET,)}, **overrides)


def plan_of(tmp_path: Path, checkpoint: Path, registry: Registry | None = None) -> ModelPlan:
    return planner(tmp_path, registry).plan(entry_of(checkpoint))


def test_a_name_that_nobody_pushed(registry: Registry) -> None:
    found = find_published(registry, "one", "1.0", KEY)
    assert (found.same, found.elsewhere) == (None, None)


def test_the_same_version_of_the_same_inputs(registry: Registry, tmp_path: Path) -> None:
    identity = push(registry, tmp_path, "1.0", KEY)
    found = find_published(registry, "one", "1.0", KEY).same
    assert found is not None
    assert (found.artifact_id, found.manifest.name) == (identity, "one")
    assert found.build["labels"] == {"build-key": KEY}


def test_a_version_that_is_not_signed_by_this_key(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1.0", KEY)
    signer, other = (Ed25519Signer(Ed25519PrivateKey.generate()) for _ in range(2))

    def lacks_signature(key: Ed25519Signer | None) -> bool:
        found = find_published(registry, "one", "1.0", KEY, key).same
        assert found is not None
        return found.lacks_signature

    assert not lacks_signature(None)
    assert lacks_signature(signer)
    resolved = registry.resolve(Reference(name="one", version="1.0"))
    registry.sign(resolved, signer)
    assert not lacks_signature(signer)
    assert lacks_signature(other)
    # A signature of this key, but of another version.
    registry.sign(replace(resolved, version="0.9"), signer)
    path = paths.signature("one", "{}", signer.key_id)
    stray = registry.storage.read(path.format("0.9"))
    assert stray is not None
    registry.storage.replace(path.format("1.0"), stray)
    assert lacks_signature(signer)


@pytest.mark.parametrize("damage", ["absent", "cut"])
def test_a_version_whose_blobs_are_damaged_is_made_again(
    registry: Registry, tmp_path: Path, checkpoint: Path, damage: str
) -> None:
    key = plan_of(tmp_path, checkpoint).key
    push(registry, tmp_path, "1.0", key)
    push(registry, tmp_path, "0.9", key)
    assert find_published(registry, "one", "1.1", key).elsewhere is not None
    largest = max(
        registry.manifest(registry.version_record("one", "1.0").id).files,
        key=lambda file: file.num_bytes,
    )
    path = paths.blob(largest.sha256)
    if damage == "absent":
        registry.storage.delete(path)
    else:
        registry.storage.replace(path, b"")
    plan = plan_of(tmp_path, checkpoint, registry)
    assert (plan.published, plan.elsewhere, plan.is_damaged) == (None, None, True)
    assert find_published(registry, "one", "1.1", key).elsewhere is None
    # Pushed again it is whole.
    push(registry, tmp_path / "again", "1.0", key)
    plan = plan_of(tmp_path, checkpoint, registry)
    assert plan.published is not None
    assert not plan.is_damaged


def test_another_version_of_the_same_inputs_newest_first(
    registry: Registry, tmp_path: Path
) -> None:
    for version, key in (("0.7", KEY), ("0.8", KEY), ("0.9", OTHER_KEY)):
        push(registry, tmp_path, version, key)
    found = find_published(registry, "one", "1.0", KEY)
    assert (found.same, found.elsewhere) == (None, "0.8")


def test_a_retired_version_counts_for_nothing(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "0.9", KEY)
    registry.retire("one", "0.9", actor="unverified:test")
    assert find_published(registry, "one", "1.0", KEY).elsewhere is None


@pytest.mark.parametrize(
    ("key", "inputs"), [(OTHER_KEY, "build key ffffffffffff"), (None, "no build key")]
)
def test_the_same_version_of_other_inputs(
    registry: Registry, tmp_path: Path, key: str | None, inputs: str
) -> None:
    push(registry, tmp_path, "1.0", key)
    with pytest.raises(RefusedError) as caught:
        find_published(registry, "one", "1.0", KEY)
    assert str(caught.value) == (
        f"{registry.location} has one==1.0 with {inputs}, the build file makes 0123456789ab; "
        "published versions never change: raise the version, or put {key} into it"
    )


def test_nothing_is_there_yet(tmp_path: Path, checkpoint: Path, registry: Registry) -> None:
    plan = plan_of(tmp_path, checkpoint, registry)
    assert (plan.published, plan.elsewhere, plan.is_there) == (None, None, False)
    assert plan.out == tmp_path / "out" / "one" / "1.0"
    assert plan.title == "one==1.0"


def test_what_an_earlier_run_left_in_the_out_folder(tmp_path: Path, checkpoint: Path) -> None:
    first = plan_of(tmp_path, checkpoint)
    write_built(first.out, key=first.key)
    assert plan_of(tmp_path, checkpoint).is_there
    (checkpoint / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(RefusedError) as caught:
        plan_of(tmp_path, checkpoint)
    assert str(caught.value).startswith(
        f"{first.out}: holds an artifact with build key {first.key[:12]}, the build file makes "
    )


def test_what_is_no_artifact_in_the_out_folder(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "out" / "one" / "1.0").mkdir(parents=True)
    with pytest.raises(RefusedError, match=r"expected an artifact directory with artifact\.json"):
        plan_of(tmp_path, checkpoint)


def test_a_published_version_needs_no_look_into_the_out_folder(
    tmp_path: Path, checkpoint: Path, registry: Registry
) -> None:
    key = plan_of(tmp_path, checkpoint).key
    push(registry, tmp_path, "1.0", key)
    plan = plan_of(tmp_path, checkpoint, registry)
    assert plan.published is not None
    assert plan.published.version == "1.0"
    assert not plan.is_there


def test_a_required_target_that_is_not_built(tmp_path: Path, checkpoint: Path) -> None:
    gates = GateBounds(required_targets=(TARGET, "cpu-x86_64-avx512-f32"))
    with pytest.raises(UsageError) as caught:
        planner(tmp_path).plan(entry_of(checkpoint, gates=gates))
    assert str(caught.value) == (
        "models.toml: [[model]] 1 (one): gates: required-targets: expected targets that the model "
        f"builds ({TARGET}), found 'cpu-x86_64-avx512-f32'; did you mean {TARGET}?"
    )


def test_two_entries_that_come_to_one_version(tmp_path: Path, checkpoint: Path) -> None:
    plans = planner(tmp_path)
    one = entry_of(checkpoint, version="{key}", place="models.toml: [[model]] 1 (one)")
    two = entry_of(checkpoint, version="{key}", place="models.toml: [[model]] 2 (one)")
    version = plans.plan(one).version
    with pytest.raises(RefusedError) as caught:
        plans.plan(two)
    assert str(caught.value) == (
        f"models.toml: [[model]] 2 (one): one=={version} is already made of the same inputs by "
        "[[model]] 1 (one); leave one of them out"
    )
