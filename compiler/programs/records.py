"""What build.json says of an artifact that was made of others. Knows no manifest.

Each record it came from stands in `from`: when and where it was built, and how long it took.
"""

from collections.abc import Mapping, Sequence

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.typed_json import show
from infinity_v3.compiler.parity import ParityReport
from infinity_v3.compiler.progress import StageTime
from infinity_v3.compiler.provenance import build_record

_ORIGIN = ("built_at", "host", "times", "from")
Record = Mapping[str, object]


def retargeted_record(
    artifact_id: str,
    record: Record,
    reports: Sequence[ParityReport],
    checked: Sequence[ParityReport],
    times: Sequence[StageTime],
) -> dict[str, object]:
    """The record of an artifact with added targets.

    Args:
        artifact_id: of the artifact that they were added to.
        record: its build.json.
        reports: of the added targets.
        checked: of engines that the reference was compared with.
        times: of the stages that added them.
    """
    new = build_record(times=times, labels=_labels(record), warnings=_warnings(record))
    figures = {report.target: dict(report.figures) for report in reports}
    return {
        **new,
        "from": [_origin(artifact_id, record)],
        "parity": {**_object(record.get("parity")), **figures},
        "reference_check": {report.target: dict(report.figures) for report in checked},
    }


def merged_record(
    records: Sequence[tuple[str, Record]],
    labels: Mapping[str, str],
    times: Sequence[StageTime],
) -> dict[str, object]:
    """The record of merged artifacts; of what two of them say of one target, the first counts.

    Args:
        records: id and build.json of each.
        labels: decide where labels differ, and are added.
        times: of the stages that merged them.

    Raises:
        RefusedError: two artifacts label one key differently, and `labels` does not name it.
    """
    parity: dict[str, object] = {}
    warnings: dict[str, None] = {}
    for _, record in records:
        parity = {**_object(record.get("parity")), **parity}
        warnings |= dict.fromkeys(_warnings(record))
    joined = _joined_labels([record for _, record in records], labels)
    return {
        **build_record(times=times, labels=joined, warnings=tuple(warnings)),
        "from": [_origin(artifact_id, record) for artifact_id, record in records],
        "parity": parity,
    }


def _joined_labels(records: Sequence[Record], decided: Mapping[str, str]) -> dict[str, str]:
    joined = dict(decided)
    for record in records:
        for key, value in _labels(record).items():
            if joined.setdefault(key, value) != value and key not in decided:
                raise RefusedError(
                    f"build.json: labels.{key}: {show(joined[key])} in one artifact, {show(value)} "
                    f"in another; decide with --label {key}=VALUE"
                )
    return joined


def _origin(artifact_id: str, record: Record) -> dict[str, object]:
    return {"id": artifact_id, **{key: record[key] for key in _ORIGIN if key in record}}


def _labels(record: Record) -> dict[str, str]:
    return {key: str(value) for key, value in _object(record.get("labels")).items()}


def _warnings(record: Record) -> tuple[str, ...]:
    found = record.get("warnings")
    return tuple(str(text) for text in found) if isinstance(found, list) else ()


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
