"""Writes down in a manifest what was decided and built. Decides nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from infinity_v3.artifacts.manifest import (
    Backend,
    ChatTemplate,
    Device,
    FileEntry,
    Graph,
    KeptProgram,
    Limits,
    Manifest,
    ModelFacts,
    Parity,
    Precision,
    Requirements,
    SharedWeights,
    Source,
    Target,
    TensorSpec,
    Tokenizer,
)
from infinity_v3.artifacts.writer import describe_files
from infinity_v3.compiler.backends.aoti import BuiltEngine
from infinity_v3.compiler.engines import TARGETS_FOLDER, BuiltTargets, weights_path
from infinity_v3.compiler.kernel_library import KERNEL_ABI
from infinity_v3.compiler.parity import ParityReport, bounds_of
from infinity_v3.compiler.programs.kept import program_folder
from infinity_v3.compiler.provenance import collect_provenance
from infinity_v3.compiler.tokenizer_copy import CHAT_TEMPLATE_FILE, TOKENIZER_FILE

if TYPE_CHECKING:
    from infinity_v3.compiler.pipeline import CompilePlan
    from infinity_v3.compiler.request import CompileRequest

_ARCH = "x86_64"


def assemble_manifest(
    plan: CompilePlan, request: CompileRequest, built: BuiltTargets, stage: Path
) -> Manifest:
    """The manifest of a staged artifact, its targets not yet verified."""
    files = describe_files(stage)
    provenance = collect_provenance(kernel_abi=KERNEL_ABI, flags=flags_of(built.engines))
    return Manifest(
        name=request.name or default_name(plan),
        kind=plan.kind,
        model=model_facts(plan),
        heads=plan.task.heads,
        prompts=plan.config.prompts,
        tokenizer=tokenizer_facts(plan),
        decision=plan.decision,
        graph=_graph(built),
        weights=tuple(SharedWeights(precision=p, path=weights_path(p)) for p in built.shared),
        program=_programs(files),
        targets=tuple(
            target_entry(
                engine,
                built.exported[engine.target.precision].limits,
                files,
                provenance.torch,
                is_decision=plan.decision is not None,
            )
            for engine in built.engines
        ),
        files=files,
        source=Source(
            repository=plan.checkpoint.repository,
            revision=plan.checkpoint.revision,
            files=plan.checkpoint.files,
            license=plan.checkpoint.license,
        ),
        provenance=provenance,
    )


def with_parity(draft: Manifest, reports: Sequence[ParityReport]) -> Manifest:
    """The draft with each target's verdict."""
    verdicts = {report.target: report for report in reports}
    targets = tuple(
        replace(target, parity=parity_of(verdicts[target.name])) for target in draft.targets
    )
    return replace(draft, targets=targets)


def default_name(plan: CompilePlan) -> str:
    """Name made of the checkpoint's id: its last part, characters outside the rule replaced."""
    checkpoint = plan.checkpoint
    base = (
        checkpoint.path.name
        if checkpoint.repository == "local"
        else checkpoint.repository.rpartition("/")[2]
    )
    allowed = "".join(c if c.isascii() and (c.isalnum() or c in "._+-") else "-" for c in base)
    return allowed.lstrip("._+-")[:100] or "model"


def model_facts(plan: CompilePlan) -> ModelFacts:
    """What the manifest says of the model's shape and limits."""
    model = plan.config.model
    return ModelFacts(
        family=plan.spec.family,
        architecture=model.architecture or plan.spec.architectures[0],
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        num_parameters=plan.checkpoint.num_parameters,
        max_input_tokens=plan.limit.rule.max_tokens,
        position_offset=plan.limit.position_offset,
        causal=plan.is_causal,
        modalities=("text",),
    )


def tokenizer_facts(plan: CompilePlan) -> Tokenizer:
    """What the manifest says of how texts become tokens."""
    files = plan.config.tokenizer
    return Tokenizer(
        file=TOKENIZER_FILE,
        length=plan.limit.rule,
        special_tokens="template" if files.num_special_tokens else "none",
        truncation_side=files.truncation_side,
        pair_template=plan.task.pair_template,
        chat_template=_chat_template(plan),
    )


def _chat_template(plan: CompilePlan) -> ChatTemplate | None:
    found = plan.conversation
    if found is None:
        return None
    return ChatTemplate(
        file=CHAT_TEMPLATE_FILE,
        variables=found.variables,
        takes_text=found.takes_text,
        takes_parts=found.takes_parts,
    )


def _graph(built: BuiltTargets) -> Graph:
    """One signature for all targets; the token output leaves each engine in its own precision."""
    graph = next(iter(built.exported.values())).graph
    outputs = tuple(
        TensorSpec(name=spec.name, dtype="float32", dims=spec.dims)
        if spec.name == "hidden"
        else spec
        for spec in graph.outputs
    )
    return Graph(inputs=graph.inputs, outputs=outputs)


def _programs(files: tuple[FileEntry, ...]) -> tuple[KeptProgram, ...]:
    kept = []
    for precision in Precision:
        paths = [f.path for f in files if f.path.startswith(f"{program_folder(precision)}/")]
        if paths:
            kept.append(KeptProgram(precision=precision, files=tuple(paths)))
    return tuple(kept)


def flags_of(engines: Sequence[BuiltEngine]) -> tuple[str, ...]:
    """Flags that change code, target by target."""
    return tuple(f"{engine.target.name}: {' '.join(engine.flags)}" for engine in engines)


def target_entry(
    engine: BuiltEngine,
    limits: Limits,
    files: tuple[FileEntry, ...],
    torch_version: str,
    *,
    is_decision: bool,
) -> Target:
    """The manifest's entry of a built target, not yet verified."""
    folder = f"{TARGETS_FOLDER}/{engine.target.name}"
    precision: Precision = engine.target.precision
    return Target(
        name=engine.target.name,
        backend=Backend.AOTI,
        device=Device.CPU,
        precision=precision,
        requires=Requirements(
            arch=_ARCH,
            isa=engine.target.isa,
            torch=".".join(torch_version.split(".")[:2]),
            kernel_abi=KERNEL_ABI,
        ),
        limits=limits,
        entry=f"{folder}/{engine.entry}",
        files=tuple(file for file in files if file.path.startswith(f"{folder}/")),
        weights=precision if engine.shares_weights else None,
        parity=Parity(
            reference="not run",
            probes_digest="0" * 64,
            probe_count=0,
            bounds=bounds_of(precision, is_decision=is_decision),
            passed=False,
        ),
    )


def parity_of(report: ParityReport) -> Parity:
    """A verdict as the manifest states it."""
    return Parity(
        reference=report.reference,
        probes_digest=report.probes_digest,
        probe_count=report.probe_count,
        bounds=report.bounds,
        passed=report.passed,
    )
