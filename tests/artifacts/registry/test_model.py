"""Random sequences of operations against a model of a few dictionaries."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.records import EventKind
from infinity_v3.artifacts.registry.registry import Registry
from registries import (
    ACTOR,
    NAME,
    StoppedError,
    StoppingStorage,
    damage_of,
    fake,
    new_registry,
    promote,
    resolve,
)

VERSIONS = st.sampled_from(["1", "2", "3"])
REVISIONS = st.sampled_from(["a", "b"])
CHANNELS = st.sampled_from(["prod", "staging"])


@dataclass
class Model:
    """What a registry ought to hold; `history` of a channel ends with where it points now."""

    versions: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    history: dict[str, list[str]] = field(default_factory=dict)
    num_events: int = 0


class RegistryMachine(RuleBasedStateMachine):
    """Every rule does the same to both, and expects a refusal where the model says so."""

    @initialize()
    def begin(self) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.registry = new_registry(self.folder / "registry")
        self.model = Model()

    def teardown(self) -> None:
        self.temporary.cleanup()

    @rule(version=VERSIONS, revision=REVISIONS)
    def push(self, version: str, revision: str) -> None:
        artifact = fake(self.folder, revision)
        known = self.model.versions.get(version)
        if known not in (None, artifact.artifact_id) or (
            known is None and version in self.model.used
        ):
            with pytest.raises(RefusedError):
                self.registry.push(artifact, version, actor=ACTOR)
            return
        report = self.registry.push(artifact, version, actor=ACTOR)
        assert report.is_new == (known is None)
        self.model.num_events += report.is_new
        self.model.used.add(version)
        self.model.versions[version] = artifact.artifact_id

    @rule(version=VERSIONS, channel=CHANNELS)
    def promote(self, version: str, channel: str) -> None:
        if version not in self.model.versions:
            with pytest.raises(RefusedError):
                promote(self.registry, version, channel=channel)
            return
        promote(self.registry, version, channel=channel)
        self._moved(version, channel)

    @rule(version=VERSIONS, channel=CHANNELS)
    def promote_and_be_killed(self, version: str, channel: str) -> None:
        """Behind the event, before the channel's file."""
        if version not in self.model.versions:
            return
        storage = StoppingStorage(LocalStorage(self.folder / "registry"), 1)
        with pytest.raises(StoppedError):
            promote(self._unlucky(storage), version, channel=channel)
        # The killed one may have been stopped earlier, while it completed what another had left.
        if len(list(self.registry.events(NAME))) > self.model.num_events:
            self._moved(version, channel)

    @rule(channel=CHANNELS)
    def roll_back(self, channel: str) -> None:
        if not self.model.num_events:
            return
        places = self.registry.places_before(NAME, channel)
        history = self.model.history.get(channel, [])
        expected = [version for version in history[:-1] if version in self.model.versions]
        assert [version for version, _ in places] == expected
        if not expected:
            return
        promote(self.registry, expected[-1], channel=channel, kind=EventKind.ROLLBACK)
        self.model.num_events += 1
        while history[-1] != expected[-1]:
            history.pop()

    @rule(version=VERSIONS)
    def retire(self, version: str) -> None:
        users = [history[-1] for history in self.model.history.values()]
        if version not in self.model.versions or version in users:
            with pytest.raises(RefusedError):
                self.registry.retire(NAME, version, actor=ACTOR)
            return
        self.registry.retire(NAME, version, actor=ACTOR)
        self.model.num_events += 1
        del self.model.versions[version]

    @rule()
    def collect(self) -> None:
        self.registry.collect_garbage(grace_s=0.0, is_dry_run=False)

    @invariant()
    def agrees(self) -> None:
        for registry in (self.registry, Registry(self.registry.storage)):
            assert len(list(registry.events(NAME))) == self.model.num_events
            found = {version: record.id for version, record in registry.versions(NAME).items()}
            assert found == self.model.versions
            for channel, history in self.model.history.items():
                assert resolve(registry, f"{NAME}:{channel}").version == history[-1]
        assert damage_of(self.registry) == {}

    def _moved(self, version: str, channel: str) -> None:
        self.model.num_events += 1
        history = self.model.history.setdefault(channel, [])
        if history[-1:] != [version]:
            history.append(version)

    def _unlucky(self, storage: StoppingStorage) -> Registry:
        return Registry(storage)


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=12, stateful_step_count=15, deadline=None)
