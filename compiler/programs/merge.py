"""Joins targets that were built apart, of one checkpoint, into one artifact.

Owns what must be equal for that. Opens no engine and needs no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import (
    FileEntry,
    KeptProgram,
    Manifest,
    Precision,
    SharedWeights,
    Target,
)
from infinity_v3.artifacts.profile import Profile, TargetProfile, profile_to_json, read_profile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.typed_json import Location, canonical_bytes, show, to_json
from infinity_v3.artifacts.writer import ArtifactWriter
from infinity_v3.compiler.inspection import read_records
from infinity_v3.compiler.programs.copying import copy_files
from infinity_v3.compiler.programs.joining import in_order, joined_provenance
from infinity_v3.compiler.programs.records import merged_record
from infinity_v3.compiler.progress import Progress

_SAME = ("name", "kind", "model", "heads", "prompts", "tokenizer", "decision", "graph", "source")
"""Keys of the manifest that say what the model is."""
_TOKENIZER = "tokenizer/"
_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """What to join.

    Attributes:
        out: directory of the new artifact; must not exist.
        labels: decide where the artifacts' labels differ, and are added.
    """

    out: Path
    labels: Mapping[str, str]


def merge_artifacts(
    artifacts: Sequence[Artifact], request: MergeRequest, progress: Progress
) -> Artifact:
    """Join the targets of artifacts and publish them as one; nothing is built or run.

    Args:
        artifacts: two or more, their digests checked.
        request: where to.
        progress: told of each step.

    Raises:
        RefusedError: they differ in what the model is, hold different targets of one name, or
            label one key differently.
        UsageError: the output exists.
        RunFailedError: a file cannot be copied.
    """
    manifest = joined_manifest([(artifact.path, artifact.manifest) for artifact in artifacts])
    records = [(artifact.artifact_id, read_records(artifact)) for artifact in artifacts]
    with ArtifactWriter(request.out) as writer:
        with progress.stage("copy"):
            for artifact in artifacts:
                copy_files(artifact.path, artifact.manifest.files, writer.stage)
        profiles = [read_profile(artifact.path) for artifact in artifacts]
        with progress.stage("publish"):
            return writer.commit(
                manifest,
                profile=profile_to_json(_joined_profile(profiles)),
                build=merged_record(records, request.labels, progress.times()),
            )


def joined_manifest(parts: Sequence[tuple[Path, Manifest]]) -> Manifest:
    """The manifest of all parts' targets; the order of the parts does not matter to it.

    Args:
        parts: where each artifact lies, for errors, and its manifest.

    Raises:
        RefusedError: names the key in which two parts differ, and both values.
    """
    first_path, first = parts[0]
    for path, other in parts[1:]:
        _refuse_other_model(first_path, first, path, other)
    targets = _joined_targets(parts)
    order = [target.name for target in targets]
    base = min(
        (manifest for _, manifest in parts),
        key=lambda manifest: (
            min(order.index(target.name) for target in manifest.targets),
            canonical_bytes(to_json(manifest.provenance), Location("")),
        ),
    )
    others = [
        (manifest.provenance, frozenset(target.name for target in manifest.targets))
        for _, manifest in parts
    ]
    return replace(
        first,
        targets=targets,
        weights=_joined_weights([manifest for _, manifest in parts], targets),
        program=_joined_programs([manifest for _, manifest in parts]),
        files=_joined_files([manifest for _, manifest in parts]),
        provenance=joined_provenance(base.provenance, others, order),
    )


def _refuse_other_model(
    first_path: Path, first: Manifest, other_path: Path, other: Manifest
) -> None:
    for key in _SAME:
        _refuse_difference(
            key, to_json(getattr(first, key)), to_json(getattr(other, key)), first_path, other_path
        )
    for what, files in (("files", _tokenizer_files), ("weights", _weight_files)):
        mine, theirs = files(first), files(other)
        both = mine.keys() & theirs.keys() if what == "weights" else mine.keys() | theirs.keys()
        for path in sorted(both):
            _refuse_difference(
                f"{what}: {path}", mine.get(path), theirs.get(path), first_path, other_path
            )
    for precision, mine_kept in _programs(first).items():
        theirs_kept = _programs(other).get(precision)
        if theirs_kept is not None:
            _refuse_difference(
                f"program: {precision}", mine_kept, theirs_kept, first_path, other_path
            )


def _refuse_difference(key: str, mine: object, theirs: object, at: Path, other: Path) -> None:
    """Name the innermost key that differs, and both values."""
    if mine == theirs:
        return
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for name in sorted(mine.keys() | theirs.keys()):
            inner = f"{key}.{name}" if name.isidentifier() else f"{key}: {name}"
            _refuse_difference(inner, mine.get(name), theirs.get(name), at, other)
    if isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for index, (left, right) in enumerate(zip(mine, theirs, strict=True)):
            _refuse_difference(f"{key}[{index}]", left, right, at, other)
    raise RefusedError(
        f"artifacts of one model are merged, these differ in {key}: {_short(mine)} in {at}, "
        f"{_short(theirs)} in {other}; compile both from the same checkpoint with the same options"
    )


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"{len(value)} entries"
    text = show(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _tokenizer_files(manifest: Manifest) -> dict[str, str]:
    return {f.path: f.sha256 for f in manifest.files if f.path.startswith(_TOKENIZER)}


def _weight_files(manifest: Manifest) -> dict[str, str]:
    digests = {file.path: file.sha256 for file in manifest.files}
    return {weights.path: digests[weights.path] for weights in manifest.weights}


def _programs(manifest: Manifest) -> dict[str, dict[str, str]]:
    digests = {file.path: file.sha256 for file in manifest.files}
    return {
        kept.precision.value: {path: digests[path] for path in kept.files}
        for kept in manifest.program
    }


def _joined_targets(parts: Sequence[tuple[Path, Manifest]]) -> tuple[Target, ...]:
    found: dict[str, tuple[Path, Target]] = {}
    for path, manifest in parts:
        for target in manifest.targets:
            first_path, known = found.setdefault(target.name, (path, target))
            for key in ("files", "requires", "limits", "entry", "weights"):
                _refuse_difference(
                    f"targets: {target.name}.{key}",
                    to_json(getattr(known, key)),
                    to_json(getattr(target, key)),
                    first_path,
                    path,
                )
            # Verified twice: the smaller one is kept, so that the order of the parts is no matter.
            kept = min(known, target, key=lambda t: canonical_bytes(to_json(t), Location("")))
            found[target.name] = (first_path, kept)
    return in_order(target for _, target in found.values())


def _joined_weights(
    manifests: Sequence[Manifest], targets: Sequence[Target]
) -> tuple[SharedWeights, ...]:
    known = {weights.precision: weights for m in manifests for weights in m.weights}
    used = dict.fromkeys(target.precision for target in targets)
    return tuple(known[precision] for precision in used if precision in known)


def _joined_programs(manifests: Sequence[Manifest]) -> tuple[KeptProgram, ...]:
    known = {kept.precision: kept for m in manifests for kept in m.program}
    return tuple(known[precision] for precision in Precision if precision in known)


def _joined_files(manifests: Sequence[Manifest]) -> tuple[FileEntry, ...]:
    known = {file.path: file for m in manifests for file in m.files}
    return tuple(known[path] for path in sorted(known))


def _joined_profile(profiles: Sequence[Profile]) -> Profile:
    """Facts of each target; of what was measured twice, the first counts."""
    joined: dict[str, TargetProfile] = {}
    for profile in profiles:
        joined = {**profile.targets, **joined}
    return Profile(targets=joined)
