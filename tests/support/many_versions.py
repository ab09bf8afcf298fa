"""A registry of many versions that share their weights: what it sends, finds and removes."""

import hashlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from fake_artifact import make_manifest, make_target, write_fake_files
from infinity_v3.artifacts.codec import encode_manifest
from infinity_v3.artifacts.manifest import FileEntry, Manifest, Precision, Target
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.reference import parse_reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.store import Artifact, open_artifact
from registries import ACTOR, NAME, files_below, new_registry, promote

WEIGHTS = "weights/float32.safetensors"
STEADY, CHANGED = "cpu-x86_64-avx2-f32", "cpu-x86_64-avx512-f32"

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleModel:
    """Versions of one model: shared weights, a target that stays and one that each changes."""

    folder: Path
    weight_bytes: int

    def version(self, number: int) -> Artifact:
        """Write the artifact of a version, over the one before."""
        path = self.folder / "artifact"
        manifest = self._manifest(number)
        if not path.exists():
            path.mkdir()
            write_fake_files(path, make_manifest(targets=self._targets()))
            _write_weights(path / WEIGHTS, self.weight_bytes)
        (path / "targets" / CHANGED / "model.so").write_bytes(_engine(number))
        (path / "build.json").write_bytes(b'{"number":%d}\n' % number)
        (path / "artifact.json").write_bytes(encode_manifest(manifest))
        return open_artifact(path, allow_shared=True)

    def new_bytes(self, number: int) -> int:
        """Bytes of the files that no other version has."""
        return len(_engine(number)) + len(b'{"number":%d}\n' % number)

    def _targets(self) -> tuple[Target, ...]:
        return tuple(make_target(name, weights=Precision.FLOAT32) for name in (STEADY, CHANGED))

    def _manifest(self, number: int) -> Manifest:
        engine = _entry(f"targets/{CHANGED}/model.so", _engine(number))
        weights = FileEntry(
            path=WEIGHTS, num_bytes=self.weight_bytes, sha256=_weights_digest(self.weight_bytes)
        )
        changed = {engine.path: engine, weights.path: weights}
        steady, other = self._targets()
        other = replace(other, files=tuple(changed.get(entry.path, entry) for entry in other.files))
        manifest = make_manifest(name=NAME, targets=(steady, other))
        files = tuple(changed.get(entry.path, entry) for entry in manifest.files)
        return replace(manifest, files=files)


class CountingStorage(LocalStorage):
    """A directory that counts what is uploaded."""

    uploaded_bytes = 0

    def upload(self, path: str, source: Path) -> None:
        self.uploaded_bytes += source.stat().st_size
        super().upload(path, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleFigures:
    """What was seen.

    Attributes:
        first_bytes, last_bytes: uploaded by the push of the first and of the last version.
        expected_last_bytes: what only the last version has.
        push_s: median of a push.
        list_s, resolve_s: medians, each by a process that has read nothing yet.
        stored_bytes: of all blobs.
        gc_s: one run that removes half of all versions' files.
        is_gc_exact: it removed exactly the files of retired versions.
    """

    num_versions: int
    first_bytes: int
    last_bytes: int
    expected_last_bytes: int
    push_s: float
    list_s: float
    resolve_s: float
    stored_bytes: int
    gc_s: float
    is_gc_exact: bool


def run_scale(folder: Path, *, num_versions: int, weight_bytes: int, rounds: int) -> ScaleFigures:
    """Push versions one after the other, list, resolve, retire every second one and collect."""
    model = ScaleModel(folder=folder, weight_bytes=weight_bytes)
    place = folder / "registry"
    new_registry(place)
    storage = CountingStorage(place)
    registry = Registry(storage)
    sent: list[int] = []
    push_times_s: list[float] = []
    for number in range(num_versions):
        artifact = model.version(number)
        push_s, report = _timed(partial(registry.push, artifact, f"v{number}", actor=ACTOR))
        push_times_s.append(push_s)
        sent.append(report.sent_bytes)
    assert sum(sent) == storage.uploaded_bytes
    promote(registry, f"v{num_versions - 1}")
    stored_bytes = sum(path.stat().st_size for path in (place / paths.BLOBS).iterdir())
    list_s = _median_s(lambda: _fresh(place).versions(NAME), rounds)
    resolve_s = _median_s(lambda: _fresh(place).resolve(parse_reference(f"{NAME}:prod")), rounds)
    gc_s, is_gc_exact = _collect(registry, num_versions)
    return ScaleFigures(
        num_versions=num_versions,
        first_bytes=sent[0],
        last_bytes=sent[-1],
        expected_last_bytes=model.new_bytes(num_versions - 1),
        push_s=statistics.median(push_times_s),
        list_s=list_s,
        resolve_s=resolve_s,
        stored_bytes=stored_bytes,
        gc_s=gc_s,
        is_gc_exact=is_gc_exact,
    )


def _collect(registry: Registry, num_versions: int) -> tuple[float, bool]:
    """Retire every second version and collect; the time, and whether the right files went."""
    retired = range(0, num_versions - 1, 2)
    expected: set[str] = set()
    for number in retired:
        record = registry.version_record(NAME, f"v{number}")
        registry.retire(NAME, f"v{number}", actor=ACTOR)
        expected |= {
            paths.manifest(record.id),
            paths.blob(hashlib.sha256(_engine(number)).hexdigest()),
        }
    place = Path(registry.location)
    before = {str(path.relative_to(place)) for path in files_below(place)}
    gc_s, report = _timed(lambda: registry.collect_garbage(grace_s=-1, is_dry_run=False))
    after = {str(path.relative_to(place)) for path in files_below(place)}
    return gc_s, before - after == expected == {removal.path for removal in report.removed}


def _fresh(place: Path) -> Registry:
    return Registry(LocalStorage(place))


def _median_s(work: Callable[[], object], rounds: int) -> float:
    return statistics.median(_timed(work)[0] for _ in range(rounds))


def _timed(work: Callable[[], ResultT]) -> tuple[float, ResultT]:
    started_s = time.perf_counter()
    result = work()
    return time.perf_counter() - started_s, result


def _engine(number: int) -> bytes:
    return b"engine %06d" % number * 1000


def _entry(path: str, data: bytes) -> FileEntry:
    return FileEntry(path=path, num_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def _weights_digest(num_bytes: int) -> str:
    return hashlib.sha256(bytes(num_bytes)).hexdigest()


def _write_weights(path: Path, num_bytes: int) -> None:
    # A hole would be read faster than real weights.
    path.write_bytes(bytes(num_bytes))
    path.chmod(0o644)
