"""Adds targets to an artifact from the programs that it keeps, without its checkpoint.

Owns the order of the steps and what a new target is compared with: the kept program of float32, run
by torch without compiling it, which the compile held to the checkpoint's own model and which is
held to a verified engine of float32 here before it is believed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import (
    Manifest,
    Precision,
    SharedWeights,
    Target,
)
from infinity_v3.artifacts.profile import profile_to_json, read_profile
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.target import incompatibility
from infinity_v3.artifacts.writer import ArtifactWriter, describe_files
from infinity_v3.compiler.backends.aoti import BuiltEngine
from infinity_v3.compiler.cpu_targets import CpuTarget
from infinity_v3.compiler.decision_probes import ask
from infinity_v3.compiler.engines import (
    build_engines,
    exceeds_embed_limit,
    limit_threads,
    weights_path,
)
from infinity_v3.compiler.inspection import read_records
from infinity_v3.compiler.int8.texts import subject_texts
from infinity_v3.compiler.kernel_cache import kernel_cache
from infinity_v3.compiler.kernel_library import KERNEL_ABI
from infinity_v3.compiler.manifest_parts import flags_of, parity_of, target_entry
from infinity_v3.compiler.packed import KEY_COUNTS
from infinity_v3.compiler.parity import ParityReport
from infinity_v3.compiler.probes import make_probes
from infinity_v3.compiler.programs.check import (
    check_retarget,
    kept_program,
    reference_program,
)
from infinity_v3.compiler.programs.copying import copy_files
from infinity_v3.compiler.programs.eager import REFERENCE_NAME, attention_windows, run_probes
from infinity_v3.compiler.programs.joining import in_order, joined_provenance
from infinity_v3.compiler.programs.kept import load_program, save_weights
from infinity_v3.compiler.programs.records import retargeted_record
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.provenance import collect_provenance
from infinity_v3.compiler.reference_outputs import ReferenceOutputs
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.verify import refuse_failed, verify_target


def retarget_artifact(artifact: Artifact, request: CompileRequest, progress: Progress) -> Artifact:
    """Build and verify targets from the artifact's own programs, and publish all together.

    Args:
        artifact: its digests were checked.
        request: targets, output and how to build; what it says of a checkpoint counts for nothing.
        progress: told of each step.

    Raises:
        InfinityError: nothing was published.
    """
    manifest = artifact.manifest
    targets = check_retarget(manifest, request.targets)
    with ArtifactWriter(request.out) as writer:
        with progress.stage("copy"):
            copy_files(artifact.path, manifest.files, writer.stage)
        threads = limit_threads(request.threads)
        reference = reference_of(artifact, targets, progress)
        checked = check_reference(artifact, reference, threads, progress)
        draft = _build(artifact, targets, request, writer.stage, progress)
        writer.write_manifest(draft)
        added = {target.name for target in targets}
        new = [target for target in draft.targets if target.name in added]
        reports = _verify(writer.stage, new, reference, threads, progress)
        refuse_failed(reports)
        with progress.stage("publish"):
            return writer.commit(
                _with_parity(draft, {report.target: report for report in reports}),
                profile=profile_to_json(read_profile(artifact.path)),
                build=retargeted_record(
                    artifact.artifact_id, read_records(artifact), reports, checked, progress.times()
                ),
            )


def reference_of(
    artifact: Artifact, targets: Sequence[CpuTarget], progress: Progress
) -> ReferenceOutputs:
    """What the kept program of float32 says to probes that suit these targets."""
    manifest = artifact.manifest
    with progress.stage("load program float32"):
        model = load_program(artifact.path, reference_program(manifest), manifest)
    inputs = {spec.name for spec in manifest.graph.inputs}
    is_ranked = any(target.precision is Precision.INT8 for target in targets)
    probes = make_probes(
        artifact.path / manifest.tokenizer.file,
        vocab_size=manifest.model.vocab_size,
        num_parameters=manifest.model.num_parameters,
        max_tokens=manifest.model.max_input_tokens,
        windows=attention_windows(model.program),
        avoid=frozenset(),
        has_token_types="token_type_ids" in inputs and manifest.decision is None,
        has_key_counts=KEY_COUNTS in inputs,
        ranked_texts=subject_texts() if is_ranked else (),
    )
    if manifest.decision is not None:
        probes = ask(probes, manifest.decision)
    outputs = run_probes(model, probes, manifest.model.position_offset, progress)
    return ReferenceOutputs(name=REFERENCE_NAME, probes=probes, outputs=tuple(outputs))


def check_reference(
    artifact: Artifact, reference: ReferenceOutputs, threads: int, progress: Progress
) -> tuple[ParityReport, ...]:
    """Hold the reference to the best verified engine of float32 that runs here, if there is one."""
    host = detect_host()
    verified = [
        target
        for target in artifact.manifest.targets
        if target.precision is Precision.FLOAT32
        and target.parity.passed
        and incompatibility(target, host) is None
    ]
    reports = _verify(artifact.path, verified[:1], reference, threads, progress)
    refuse_failed(reports)
    return reports


def _build(
    artifact: Artifact,
    targets: Sequence[CpuTarget],
    request: CompileRequest,
    stage: Path,
    progress: Progress,
) -> Manifest:
    """Build the targets into the stage; gives the manifest of all that is there."""
    manifest = artifact.manifest
    engines: list[BuiltEngine] = []
    shared = {weights.precision for weights in manifest.weights}
    limits = {}
    with kernel_cache(request.kernel_cache, progress) as cache:
        for precision in dict.fromkeys(target.precision for target in targets):
            with progress.stage(f"load program {precision.value}"):
                kept = kept_program(manifest, precision, "which targets are built from")
                model = load_program(artifact.path, kept, manifest)
            limits[precision] = model.limits
            if precision not in shared and exceeds_embed_limit(model, request.embed_limit_mb):
                save_weights(model.program, stage / weights_path(precision))
                shared.add(precision)
            own = [target for target in targets if target.precision is precision]
            engines += build_engines(
                model, own, stage, progress, cache, share_weights=precision in shared
            )
    files = describe_files(stage)
    provenance = collect_provenance(kernel_abi=KERNEL_ABI, flags=flags_of(engines))
    added = [
        target_entry(
            engine,
            limits[engine.target.precision],
            files,
            provenance.torch,
            is_decision=manifest.decision is not None,
        )
        for engine in engines
    ]
    ordered = in_order((*manifest.targets, *added))
    return replace(
        manifest,
        targets=ordered,
        weights=tuple(
            SharedWeights(precision=p, path=weights_path(p))
            for p in dict.fromkeys(target.precision for target in ordered)
            if p in shared
        ),
        files=files,
        provenance=joined_provenance(
            manifest.provenance,
            [(provenance, frozenset(target.name for target in added))],
            [target.name for target in ordered],
        ),
    )


def _verify(
    root: Path,
    targets: Sequence[Target],
    reference: ReferenceOutputs,
    threads: int,
    progress: Progress,
) -> tuple[ParityReport, ...]:
    reports = []
    for target in targets:
        with progress.stage(f"verify {target.name}"):
            reports.append(
                verify_target(
                    root,
                    target,
                    reference.probes,
                    reference.outputs,
                    reference_name=reference.name,
                    threads=threads,
                )
            )
    return tuple(reports)


def _with_parity(draft: Manifest, reports: Mapping[str, ParityReport]) -> Manifest:
    """The draft with the verdicts of the new targets; the others keep theirs."""
    targets = tuple(
        replace(target, parity=parity_of(reports[target.name]))
        if target.name in reports
        else target
        for target in draft.targets
    )
    return replace(draft, targets=targets)
