"""A process that works on a registry at random until it is killed, and tells what was acknowledged.

Each line of its journal was written after the registry said that something is done.
"""

import json
import os
import random
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import InfinityError, RefusedError
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.moves import ChannelMove
from infinity_v3.artifacts.registry.records import EventKind
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.registry import Registry
from registries import ACTOR, NAME, fake

CHANNELS = ("prod", "staging")
NUM_REVISIONS = 5
_ACTIONS = ("push", "push", "promote", "promote", "rollback", "retire", "gc", "pull")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a run lies: registry, artifacts, pulled directories and journals below one folder."""

    folder: Path

    @property
    def registry(self) -> Path:
        return self.folder / "registry"

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def pulled(self) -> Path:
        return self.folder / "pulled"

    @property
    def journals(self) -> Path:
        return self.folder / "journals"

    def open(self) -> Registry:
        """The registry, with eyes that have not read it yet."""
        return Registry(LocalStorage(self.registry))


class RegistryWorker:
    """Actions on one registry; what another worker made impossible is refused, and that is fine."""

    def __init__(self, site: Site, label: str) -> None:
        self._site = site
        self._label = label
        self._random = random.Random(label)
        self._journal = site.journals / f"{label}.jsonl"
        self._num_actions = 0

    def run(self) -> None:
        """Work until killed; whatever is neither done nor refused ends the process with 1."""
        while True:
            action = self._random.choice(_ACTIONS)
            self._num_actions += 1
            # A fresh one each time, as each command of a user is.
            registry = self._site.open()
            with suppress(RefusedError):
                getattr(self, f"_{action}")(registry)

    def _push(self, registry: Registry) -> None:
        artifact = fake(self._site.artifacts, f"r{self._random.randrange(NUM_REVISIONS)}")
        version = f"{self._label}.{self._num_actions}"
        report = registry.push(artifact, version, actor=ACTOR)
        self._acknowledge("push", event=report.event, version=version, id=report.id)

    def _promote(self, registry: Registry) -> None:
        self._move(registry, EventKind.PROMOTE, self._any_version(registry))

    def _rollback(self, registry: Registry) -> None:
        channel = self._random.choice(CHANNELS)
        before = registry.places_before(NAME, channel)
        if before:
            self._move(registry, EventKind.ROLLBACK, before[-1][0], channel)

    def _move(
        self, registry: Registry, kind: EventKind, version: str | None, channel: str | None = None
    ) -> None:
        if version is None:
            return
        event = registry.move_channel(
            ChannelMove(
                name=NAME,
                channel=channel or self._random.choice(CHANNELS),
                version=version,
                id=registry.version_record(NAME, version).id,
                kind=kind,
                actor=ACTOR,
                is_ungated=True,
            )
        )
        self._acknowledge(kind.value, event=event.seq, version=version, id=event.id)

    def _retire(self, registry: Registry) -> None:
        version = self._any_version(registry)
        if version is not None and len(registry.versions(NAME)) > NUM_REVISIONS:
            event = registry.retire(NAME, version, actor=ACTOR)
            self._acknowledge("retire", event=event.seq, version=version, id=event.id)

    def _gc(self, registry: Registry) -> None:
        registry.collect_garbage(grace_s=0, is_dry_run=False)

    def _pull(self, registry: Registry) -> None:
        version = self._any_version(registry)
        if version is not None:
            resolved = registry.resolve(Reference(name=NAME, version=version))
            registry.pull(resolved, self._site.pulled / f"{self._label}.{self._num_actions}")

    def _any_version(self, registry: Registry) -> str | None:
        versions = list(registry.versions(NAME)) if NAME in registry.names() else []
        return self._random.choice(versions) if versions else None

    def _acknowledge(self, kind: str, **facts: object) -> None:
        line = json.dumps({"kind": kind, **facts}) + "\n"
        descriptor = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def start_worker(site: Site, label: str) -> int:
    """Fork a worker; returns its process id. It ends by a signal only, or with 1 and a reason."""
    pid = os.fork()
    if pid:
        return pid
    try:
        RegistryWorker(site, label).run()
    except InfinityError as error:
        sys.stderr.write(f"{label}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(1)


def acknowledged(site: Site) -> list[dict[str, object]]:
    """All that workers were told is done; the last line of a killed one may be torn."""
    found = []
    for path in sorted(site.journals.glob("*.jsonl")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                found.append(json.loads(line))
    return found
