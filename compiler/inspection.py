"""Describes an artifact as a table or as JSON. Opens no engine, reads no weight."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.codec import encode_manifest
from infinity_v3.artifacts.decision import Decision
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.artifacts.layout import BUILD_FILE
from infinity_v3.artifacts.manifest import Heads, LateInteraction, Manifest, Target
from infinity_v3.artifacts.profile import read_profile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.target import incompatibility

KIB = 1024
SHOWN_LABELS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """A target as this host sees it; `cannot_run` is None where it runs."""

    target: Target
    cannot_run: str | None
    figures: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """An artifact, what was measured when it was built, and what this host can do with it."""

    artifact: Artifact
    build: Mapping[str, object]
    targets: tuple[TargetView, ...]


def inspect_artifact(artifact: Artifact, host: HostCapabilities) -> Inspection:
    """Put together what is known of an artifact.

    Raises:
        RefusedError: build.json is not a JSON object, or profile.json breaks its format.
    """
    build = read_records(artifact)
    parity = build.get("parity")
    figures = parity if isinstance(parity, dict) else {}
    return Inspection(
        artifact=artifact,
        build=build,
        targets=tuple(
            TargetView(
                target=target,
                cannot_run=incompatibility(target, host),
                figures=_object(figures.get(target.name)),
            )
            for target in artifact.manifest.targets
        ),
    )


def read_records(artifact: Artifact) -> Mapping[str, object]:
    """Check the files outside the identity and return the content of build.json.

    Raises:
        RefusedError: build.json is not a JSON object, or profile.json breaks its format.
        RunFailedError: profile.json cannot be read.
    """
    read_profile(artifact.path)
    return _read_build(artifact.path / BUILD_FILE)


def inspection_to_json(inspection: Inspection) -> dict[str, object]:
    """Return the JSON document of `inspect --json`."""
    artifact = inspection.artifact
    return {
        "id": artifact.artifact_id,
        "path": str(artifact.path),
        "manifest": json.loads(encode_manifest(artifact.manifest)),
        "build": dict(inspection.build),
        "host": {
            view.target.name: {"runs": view.cannot_run is None, "reason": view.cannot_run}
            for view in inspection.targets
        },
    }


def inspection_to_text(inspection: Inspection) -> str:
    """Return the table of `inspect`."""
    manifest = inspection.artifact.manifest
    sections = [
        _rows("artifact", _identity(inspection.artifact)),
        _rows("model", _model(manifest)),
        _rows("heads", _heads(manifest.heads))
        if manifest.decision is None
        else _rows("decision", _decision(manifest.decision)),
        *(_rows(f"target {view.target.name}", _target(view)) for view in inspection.targets),
        _rows("source", _source(manifest)),
        _rows("built", _build(manifest, inspection.build)),
        _files(manifest),
    ]
    return "\n".join(sections)


def shown_bytes(num_bytes: int) -> str:
    """Return a size for people: 1536 -> "1.5 KiB"."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < KIB:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= KIB
    return f"{size:.1f} GiB"


def _identity(artifact: Artifact) -> list[tuple[str, object]]:
    manifest = artifact.manifest
    kept = ", ".join(program.precision.value for program in manifest.program)
    return [
        ("name", manifest.name),
        ("kind", manifest.kind.value),
        ("id", artifact.artifact_id),
        ("path", artifact.path),
        ("format", f"{manifest.format} {manifest.format_version}"),
        ("programs", kept or None),
    ]


def _model(manifest: Manifest) -> list[tuple[str, object]]:
    model = manifest.model
    return [
        ("architecture", f"{model.architecture} ({model.family})"),
        ("parameters", f"{model.num_parameters:,}"),
        ("hidden size", model.hidden_size),
        ("vocabulary", model.vocab_size),
        ("max input", f"{model.max_input_tokens} tokens ({manifest.tokenizer.length.source})"),
        ("attention", "causal" if model.causal else "bidirectional"),
    ]


def _heads(heads: Heads) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    if heads.pooling is not None:
        rows.append(("pooling", " + ".join(mode.value for mode in heads.pooling.modes)))
        if heads.pooling.alternatives:
            rows.append(("alternatives", ", ".join(m.value for m in heads.pooling.alternatives)))
    rows.append(("dimensions", heads.dimensions))
    if heads.dimensions is not None:
        rows.append(("normalized", "yes" if heads.normalize else "no"))
    rows.append(("similarity", heads.similarity))
    if heads.labels:
        rows.append(("labels", _labels(heads)))
    rows.append(("activation", heads.activation and heads.activation.value))
    if heads.late_interaction is not None:
        rows.extend(_late_interaction(heads.late_interaction))
    return rows


def _decision(decision: Decision) -> list[tuple[str, object]]:
    limits = decision.limits
    tokens = f"{limits.max_len} a sequence, {limits.head_max_len} of them for the question"
    return [
        ("protocol", f"{decision.protocol.value} ({decision.template_id})"),
        ("tokens", tokens),
        ("temperatures", ", ".join(f"{value:g}" for value in decision.temperature.by_type)),
    ]


def _labels(heads: Heads) -> str:
    if heads.opposite_label is not None:
        return f"{heads.labels[0]} against {heads.opposite_label}"
    more = len(heads.labels) - SHOWN_LABELS
    return ", ".join(heads.labels[:SHOWN_LABELS]) + (f" and {more} more" if more > 0 else "")


def _late_interaction(rules: LateInteraction) -> list[tuple[str, object]]:
    lengths = {"queries": rules.query_length, "documents": rules.document_length}
    rows: list[tuple[str, object]] = [
        (name, None if length is None else f"cut to {length} tokens")
        for name, length in lengths.items()
    ]
    if rules.query_expansion_id is not None:
        seen = "seen" if rules.attends_to_expansion else "not seen"
        filler = f"filled up with token {rules.query_expansion_id}, {seen} by the others"
        rows.append(("expansion", filler))
    if rules.skipped_ids:
        rows.append(("skipped", f"{len(rules.skipped_ids)} tokens of documents get no vector"))
    return rows


def _target(view: TargetView) -> list[tuple[str, object]]:
    target, requires = view.target, view.target.requires
    needs = [requires.arch, *requires.isa, *([f"torch {requires.torch}"] if requires.torch else [])]
    return [
        ("engine", f"{target.backend.value} on {target.device.value}, {target.precision.value}"),
        ("requires", " ".join(needs)),
        ("limits", f"{target.limits.max_tokens} tokens, {target.limits.max_sequences} inputs"),
        ("size", shown_bytes(sum(file.num_bytes for file in target.files))),
        *_parity(view),
        (
            "this host",
            "runs it" if view.cannot_run is None else f"cannot run it: {view.cannot_run}",
        ),
    ]


def _parity(view: TargetView) -> list[tuple[str, object]]:
    parity = view.target.parity
    verdict = "passed" if parity.passed else "failed"
    rows: list[tuple[str, object]] = [
        ("parity", f"{verdict} on {parity.probe_count} probes against {parity.reference}")
    ]
    rows.extend(
        ("", f"{key:<24} {_number(value)}")
        for key, value in view.figures.items()
        if _is_number(value)
    )
    return rows


def _source(manifest: Manifest) -> list[tuple[str, object]]:
    source = manifest.source
    return [
        ("repository", source.repository),
        ("revision", source.revision),
        ("license", source.license),
        ("files", f"{len(source.files)} read"),
    ]


def _build(manifest: Manifest, build: Mapping[str, object]) -> list[tuple[str, object]]:
    made = manifest.provenance
    rows: list[tuple[str, object]] = [
        ("infinity_v3", made.infinity_v3),
        ("torch", made.torch),
        ("transformers", made.transformers),
        ("compiler", made.compiler),
        ("at", build.get("built_at")),
        ("on", _object(build.get("host")).get("cpu_model")),
    ]
    rows.extend((f"label {key}", value) for key, value in _object(build.get("labels")).items())
    warnings = build.get("warnings")
    rows.extend(("warning", text) for text in (warnings if isinstance(warnings, list) else ()))
    return rows


def _files(manifest: Manifest) -> str:
    width = max((len(file.path) for file in manifest.files), default=0)
    lines = [
        f"  {file.path:<{width}}  {shown_bytes(file.num_bytes):>10}  {file.sha256[:12]}"
        for file in manifest.files
    ]
    return "\n".join(["files", *lines]) + "\n"


def _rows(title: str, rows: Sequence[tuple[str, object]]) -> str:
    shown = [(key, value) for key, value in rows if value is not None]
    return "\n".join([title, *(f"  {key:<14}{value}" for key, value in shown)]) + "\n"


def _read_build(path: Path) -> Mapping[str, object]:
    """Read build.json; it is outside the identity, so an artifact without one is whole."""
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise RefusedError(f"{path}: expected a JSON object")
    return parsed


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
