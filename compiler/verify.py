"""Runs targets through the production loader and holds them to the parity bounds.

Each target runs in a process of its own, see verify_child.py, so what is verified is what will be
served.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Precision, Target
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.target import incompatibility
from infinity_v3.compiler import verify_child
from infinity_v3.compiler.int8.ranking import judge_ranking, rank_agreement
from infinity_v3.compiler.parity import (
    OPTION_LOGITS,
    OutputKind,
    Outputs,
    ParityReport,
    bounds_of,
    compare,
    judge_batching,
    judge_reference,
    output_kind,
)
from infinity_v3.compiler.probes import Probes
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.verify_child import FOUND_FILE, PROBES_FILE

if TYPE_CHECKING:
    from infinity_v3.compiler.reference_outputs import ReferenceOutputs

_EXCEPTION_NAME = re.compile(r"^infinity_v3(\.\w+)+: ")


def verify_target(
    artifact_path: Path,
    target: Target,
    probes: Probes,
    reference: Sequence[Outputs],
    *,
    reference_name: str,
    threads: int,
) -> ParityReport:
    """Run one target in a fresh process and compare it.

    Args:
        artifact_path: an artifact directory, staged or published.
        reference: outputs of the first `probes.referenced` inputs; empty = compare alone against
            batched only.

    Raises:
        RunFailedError: the engine could not be loaded, crashed or failed on a probe.
    """
    alone, batched = _run_in_child(artifact_path, target, probes, threads)
    bounds = bounds_of(target.precision, is_decision=bool(probes.readouts))
    figures: dict[str, float] = {}
    failures: list[str] = []
    for name in sorted(alone[0]):
        kind = output_kind(name)
        against_batch = compare(
            probes.scaled([row[name] for row in batched], _in_batches(probes)),
            probes.scaled(_members(alone, probes, name), _in_batches(probes)),
            kind,
        )
        figures |= against_batch.figures(f"{name}.batch_")
        failures += judge_batching(name, against_batch, bounds, kind)
        if reference:
            leading = range(probes.referenced)
            found = probes.scaled([alone[i][name] for i in leading], leading)
            expected = probes.scaled([row[name] for row in reference], leading)
            against_reference = compare(found, expected, kind)
            figures |= against_reference.figures(f"{name}.")
            failures += judge_reference(name, against_reference, bounds, kind)
            if target.precision is Precision.INT8 and kind is OutputKind.VECTORS:
                agreement = _rank_agreement(found, reference, probes, name)
                figures[f"{name}.rank_agreement"] = agreement
                failures += judge_ranking(name, agreement)
    return ParityReport(
        target=target.name,
        reference=reference_name,
        probes_digest=probes.digest,
        probe_count=len(probes.ids),
        bounds=bounds,
        figures=figures,
        failures=tuple(failures),
    )


def _rank_agreement(
    found: Sequence[NDArray[np.float32]], reference: Sequence[Outputs], probes: Probes, name: str
) -> float:
    if not probes.ranked:
        return 0.0  # no text that the model has tokens for: nothing is shown, so nothing passes
    return rank_agreement(
        np.stack([found[i] for i in probes.ranked]),
        np.stack([reference[i][name] for i in probes.ranked]),
    )


def _members(alone: Sequence[Outputs], probes: Probes, name: str) -> list[NDArray[np.float32]]:
    """Outputs of inputs run alone, in the order in which the batches hold them."""
    return [alone[member][name] for member in _in_batches(probes)]


def _in_batches(probes: Probes) -> list[int]:
    return [member for batch in probes.batches for member in batch]


def _run_in_child(
    artifact_path: Path, target: Target, probes: Probes, threads: int
) -> tuple[list[Outputs], list[Outputs]]:
    with tempfile.TemporaryDirectory(prefix="infinity-verify-") as name:
        scratch = Path(name)
        _save_probes(scratch / PROBES_FILE, probes)
        command = [
            sys.executable,
            "-m",
            verify_child.__name__,
            str(artifact_path),
            target.name,
            str(scratch),
            str(threads),
        ]
        # Passive: hundreds of short calls, often on a machine that compiles meanwhile.
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise RunFailedError(f"target {target.name} could not be verified: {_reason(done)}")
        return _load_found(scratch / FOUND_FILE, probes)


def _reason(done: "subprocess.CompletedProcess[str]") -> str:
    if done.returncode < 0:
        return (
            f"the engine crashed with signal {-done.returncode}; "
            "this is a bug of the compiled engine"
        )
    lines = done.stderr.strip().splitlines()
    if not lines:
        return f"the verifying process ended with {done.returncode} and said nothing"
    return _EXCEPTION_NAME.sub("", lines[-1])


def _save_probes(path: Path, probes: Probes) -> None:
    bounds = np.cumsum([0, *(len(row) for row in probes.ids)])
    members = np.concatenate([np.asarray(batch) for batch in probes.batches])
    sizes = np.asarray([len(batch) for batch in probes.batches])
    types = [
        np.zeros_like(row) if types is None else types
        for row, types in zip(probes.ids, probes.types, strict=True)
    ]
    counts = [
        len(row) if count is None else count
        for row, count in zip(probes.ids, probes.key_counts, strict=True)
    ]
    readouts = probes.readouts or [np.zeros(0, dtype=np.int64)] * len(probes.ids)
    np.savez(
        path,
        readouts=np.concatenate(readouts),
        readout_bounds=np.cumsum([0, *map(len, readouts)]),
        ids=np.concatenate(probes.ids),
        types=np.concatenate(types),
        key_counts=np.asarray(counts),
        bounds=bounds,
        members=members,
        sizes=sizes,
    )


def _load_found(path: Path, probes: Probes) -> tuple[list[Outputs], list[Outputs]]:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    members = _in_batches(probes)
    return _split(arrays, "alone", probes, range(len(probes.ids))), _split(
        arrays, "batched", probes, members
    )


def _split(
    arrays: Mapping[str, NDArray[np.float32]],
    part: str,
    probes: Probes,
    positions: Sequence[int],
) -> list[Outputs]:
    rows: list[dict[str, NDArray[np.float32]]] = [{} for _ in positions]
    for key, array in arrays.items():
        kind, _, name = key.partition("/")
        if kind == part:
            bounds = np.cumsum([0, *(_num_rows(probes, i, name) for i in positions)])
            is_single = not output_kind(name).is_per_token and name != OPTION_LOGITS
            for i, row in enumerate(rows):
                row[name] = array[i] if is_single else array[bounds[i] : bounds[i + 1]]
    return [*rows]


def _num_rows(probes: Probes, position: int, output: str) -> int:
    """Rows that an output has of a probe."""
    if output == OPTION_LOGITS:
        return len(probes.readouts[position])
    return len(probes.ids[position]) if output_kind(output).is_per_token else 1


def verify_artifact(
    artifact: Artifact, checkpoint: Path | None, progress: Progress
) -> tuple[ParityReport, ...]:
    """Verify every target of a published artifact that this host can run.

    Args:
        artifact: opened with its digests checked.
        checkpoint: directory of the checkpoint it was compiled from; None = compare alone against
            batched only.

    Raises:
        RefusedError: a target broke its bounds, this host can run none, or the checkpoint is
            another one.
        RunFailedError: an engine could not be loaded or crashed.
    """
    host = detect_host()
    targets = [
        target for target in artifact.manifest.targets if incompatibility(target, host) is None
    ]
    if not targets:
        raise RefusedError(
            f"{artifact.path}: this host can run none of its targets; see infinity-compile inspect"
        )
    reference = _reference_of(artifact, checkpoint, progress)
    reports = []
    for target in targets:
        with progress.stage(f"verify {target.name}"):
            reports.append(
                verify_target(
                    artifact.path,
                    target,
                    reference.probes,
                    reference.outputs,
                    reference_name=reference.name,
                    threads=host.num_cpus,
                )
            )
    refuse_failed(reports)
    return tuple(reports)


def _reference_of(
    artifact: Artifact, checkpoint: Path | None, progress: Progress
) -> "ReferenceOutputs":
    # Lazily, because the verifying child imports this module and must stay free of torch.
    from infinity_v3.compiler.reverify import probes_of, reference_of

    return (
        probes_of(artifact) if checkpoint is None else reference_of(artifact, checkpoint, progress)
    )


def refuse_failed(reports: Sequence[ParityReport]) -> None:
    """Raise if any report holds a failure.

    Raises:
        RefusedError: naming each broken bound.
    """
    broken = [f"{report.target}: {sentence}" for report in reports for sentence in report.failures]
    if broken:
        raise RefusedError(f"parity failed, the artifact must not be used: {'; '.join(broken)}")
