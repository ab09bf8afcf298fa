"""Kills processes that push, promote, roll back, retire, pull and collect garbage in one registry.

    python tests/e2e/registry_crashes.py [--kills 200] [--seed 0] [--report FILE.md]

Two processes work at once; one is killed at a random moment, the other held still, and the registry
must be whole: no damage in fsck, every acknowledged version and event there, every channel
resolving, every pulled directory an artifact. Ends with 1 when a claim does not hold.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.artifacts.registry.fsck import FsckOrder
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.store import open_artifact
from registries import NAME, fake, new_registry
from registry_worker import (
    NUM_REVISIONS,
    Site,
    acknowledged,
    start_worker,
)
from run_origin import origin_line, run_origin

ROOT = Path(__file__).resolve().parents[2]
NUM_WORKERS = 2
LONGEST_LIFE_S = 0.25
REPORT_HEAD = """# Kills of those who work on a registry

Written by `make crashes`: two processes push, promote, roll back, retire, pull and collect garbage
in one registry; one after the other is killed at a random moment. After each kill nothing may be
lost: fsck finds no damage, every acknowledged version and event is there, every channel resolves.
"""


class Crashes:
    """Workers of one registry, and what was found wrong after each kill."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._random = random.Random(seed)
        self._num_started = 0
        self._pids: list[int] = []
        self._checked: set[Path] = set()
        self.violations: list[str] = []

    def run(self, num_kills: int) -> None:
        """Kill `num_kills` workers one after the other, looking at the registry after each."""
        self._pids = [self._start() for _ in range(NUM_WORKERS)]
        try:
            for kill in range(num_kills):
                time.sleep(self._random.uniform(0.0, LONGEST_LIFE_S))
                victim = self._random.randrange(NUM_WORKERS)
                self._kill(victim)
                self.violations += [f"after kill {kill + 1}: {text}" for text in self._check()]
                self._pids[victim] = self._start()
        finally:
            for pid in self._pids:
                _end(pid)
        self._finish()

    def summary(self) -> str:
        """What happened, in a few lines."""
        told = Counter(str(line["kind"]) for line in acknowledged(self._site))
        report = self._site.open().fsck(FsckOrder())
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(told.items()))
        return (
            f"acknowledged: {kinds}\n"
            f"pulled: {len(self._checked)} directories, all whole\n"
            f"left: {report.num_versions} versions, {report.num_events} events, "
            f"{report.num_channels} channels, {report.num_blobs} blobs\n"
        )

    def _start(self) -> int:
        self._num_started += 1
        return start_worker(self._site, f"w{self._num_started}")

    def _kill(self, victim: int) -> None:
        for index, pid in enumerate(self._pids):
            if index != victim:
                os.kill(pid, signal.SIGSTOP)
        if not _end(self._pids[victim]):
            self.violations.append("a worker ended by itself; its reason stands above")

    def _check(self) -> list[str]:
        try:
            return list(self._problems(self._site.open()))
        except InfinityError as error:
            return [str(error)]
        finally:
            for pid in self._pids:
                _continue(pid)

    def _problems(self, registry: Registry) -> Iterator[str]:
        yield from (
            f"{finding.path}: {finding.problem}" for finding in registry.fsck(FsckOrder()).damage
        )
        if NAME not in registry.names():
            return
        yield from self._lost(registry)
        for state in registry.channels(NAME):
            registry.resolve(Reference(name=NAME, channel=state.channel))
        for path in sorted(set(self._site.pulled.iterdir()) - self._checked):
            if not path.name.startswith("."):
                open_artifact(path, digests=DigestPolicy.ALWAYS)
                self._checked.add(path)

    def _lost(self, registry: Registry) -> Iterator[str]:
        """What was acknowledged and is not there."""
        events = {event.seq: event for event in registry.events(NAME)}
        told = acknowledged(self._site)
        retired = {event.version for event in events.values() if event.kind.value == "retire"}
        for line in told:
            event = events.get(int(str(line["event"])))
            found = event and (event.kind.value, event.version, event.id)
            if found != (line["kind"], line["version"], line["id"]):
                yield f"acknowledged {line}, found {found}"
            if line["kind"] == "push" and line["version"] not in retired:
                version = str(line["version"])
                if registry.resolve(Reference(name=NAME, version=version)).id != line["id"]:
                    yield f"{version} is another artifact than was acknowledged"

    def _finish(self) -> None:
        """The next writer completes everything, and gc leaves nothing behind."""
        registry = self._site.open()
        registry.push(fake(self._site.artifacts, "r0"), "last", actor="unverified:last")
        registry.collect_garbage(grace_s=0, is_dry_run=False)
        report = self._site.open().fsck(FsckOrder())
        self.violations += [
            f"at the end: {finding.path}: {finding.problem}"
            for finding in (*report.damage, *report.notes)
        ]


def _end(pid: int) -> bool:
    """Kill a worker; tells whether it had been alive."""
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def _continue(pid: int) -> None:
    # The one that was killed is gone.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def main() -> int:
    """Run all kills; 1 when a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, help="Markdown file to write")
    arguments = parser.parse_args()
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="infinity-crashes-") as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        site = Site(folder=Path(name))
        new_registry(site.registry)
        for folder in (site.artifacts, site.pulled, site.journals):
            folder.mkdir()
        for revision in range(NUM_REVISIONS):
            fake(site.artifacts, f"r{revision}")
        crashes = Crashes(site, arguments.seed)
        crashes.run(arguments.kills)
        said = crashes.summary()
    said += "".join(f"FAILED {violation}\n" for violation in crashes.violations)
    said += (
        f"{arguments.kills} kills, {len(crashes.violations)} violations, "
        f"{time.monotonic() - started_s:.0f} s\n"
    )
    sys.stdout.write(said)
    if arguments.report is not None:
        origin = origin_line(run_origin(ROOT, kills=arguments.kills, seed=arguments.seed))
        arguments.report.write_text(f"{REPORT_HEAD}\n{origin}\n\n```\n{said}```\n")
    return 1 if crashes.violations else 0


if __name__ == "__main__":
    sys.exit(main())
