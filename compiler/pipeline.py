"""Checkpoint in, verified artifact out: the whole story, step by step.

Owns the order of the steps. Knows nothing of flags, and of no family, target or file format in
particular.
"""

from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.decision import Decision
from infinity_v3.artifacts.manifest import Kind, Manifest, Precision
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.writer import ArtifactWriter
from infinity_v3.compiler.availability import runnable_targets
from infinity_v3.compiler.checkpoint import (
    Checkpoint,
    open_checkpoint,
    refuse_beyond_weights,
)
from infinity_v3.compiler.cpu_targets import CpuTarget
from infinity_v3.compiler.decision_metadata import decision_of
from infinity_v3.compiler.engines import BuiltTargets, build_targets, limit_threads
from infinity_v3.compiler.manifest_parts import assemble_manifest, with_parity
from infinity_v3.compiler.parity import ParityReport
from infinity_v3.compiler.programs.eager import run_probes
from infinity_v3.compiler.programs.kept import load_program
from infinity_v3.compiler.programs.verify_program import PROGRAM_NAME, judge_program
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.provenance import build_record
from infinity_v3.compiler.reference_outputs import ReferenceOutputs, compute_reference
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.tasks.factory import make_task
from infinity_v3.compiler.tasks.task import Task
from infinity_v3.compiler.tokenizer import (
    check_special_tokens,
    open_tokenizer,
    vocabulary_warnings,
)
from infinity_v3.compiler.tokenizer_copy import copy_tokenizer
from infinity_v3.compiler.verify import refuse_failed, verify_target
from infinity_v3.model_specs.classifier_head import stored_label_count
from infinity_v3.model_specs.conversation_template import (
    ConversationTemplate,
    conversation_template,
    conversation_warnings,
)
from infinity_v3.model_specs.decision_evidence import find_protocol
from infinity_v3.model_specs.hub_config import HubConfig, read_hub_config
from infinity_v3.model_specs.kind import resolve_kind
from infinity_v3.model_specs.length_limit import LengthLimit, length_limit
from infinity_v3.model_specs.registry import attends_causally, match
from infinity_v3.model_specs.spec import ModelSpec

_EXPERTS_NOTE = (
    "experts: in half precision a token may be routed to other experts than in the reference, so "
    "float32 engines are built; --target asks for others, which must pass parity all the same"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilePlan:
    """Everything that is decided before anything is built."""

    checkpoint: Checkpoint
    config: HubConfig
    spec: ModelSpec
    kind: Kind
    task: Task
    decision: Decision | None
    limit: LengthLimit
    targets: tuple[CpuTarget, ...]
    conversation: ConversationTemplate | None
    tokenizer_warnings: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        notes = (_EXPERTS_NOTE,) if self._has_only_float32_by_default else ()
        return (*self.task.warnings, *self.limit.warnings, *self.tokenizer_warnings, *notes)

    @property
    def _has_only_float32_by_default(self) -> bool:
        is_all_float32 = all(t.precision is Precision.FLOAT32 for t in self.targets)
        return self.config.model.has_experts and is_all_float32 and bool(self.targets)

    @property
    def is_ranked(self) -> bool:
        """Whether some engine has to rank texts as the reference does."""
        return any(target.precision is Precision.INT8 for target in self.targets)

    @property
    def is_causal(self) -> bool:
        """Whether attention sees only the past."""
        return attends_causally(self.config, self.spec)

    @property
    def num_attention_layers(self) -> int:
        """Of the encoder, and of a head that has some."""
        stated = self.config.decision
        return self.config.model.num_hidden_layers + (stated.head_layers if stated else 0)

    @property
    def has_token_types(self) -> bool:
        """Whether the graph takes token types: a table of one row adds the same to all."""
        if self.decision is not None:
            return True  # the type of the question, which its head adds to every token
        return self.spec.has_token_types and (self.config.model.type_vocab_size or 0) > 1


def compile_model(request: CompileRequest, progress: Progress) -> Artifact:
    """Compile a checkpoint, verify every target through the production loader, publish.

    Raises:
        InfinityError: with its exit code; nothing was published and nothing is left behind.
    """
    with ArtifactWriter(request.out) as writer:
        plan = plan_compile(request, progress)
        for warning in plan.warnings:
            progress.note(f"warning: {warning}")
        copy_tokenizer(plan.config, writer.stage, plan.conversation)
        limit_threads(request.threads)
        # Before the build, which takes minutes: what transformers cannot run is refused here.
        reference = compute_reference(plan, progress)
        built = build_targets(plan, request, writer.stage, progress)
        draft = assemble_manifest(plan, request, built, writer.stage)
        writer.write_manifest(draft)
        reports = verify_stage(writer.stage, draft, reference, built, progress)
        kept = verify_program(writer.stage, draft, reference, progress)
        refuse_failed((*reports, *kept))
        with progress.stage("publish"):
            return writer.commit(
                with_parity(draft, reports),
                profile={},
                build=_build_json(plan, request, (*reports, *kept), progress),
            )


def plan_compile(request: CompileRequest, progress: Progress) -> CompilePlan:
    """Read the checkpoint and decide head, length and targets.

    Raises:
        UsageError: the checkpoint cannot be compiled as asked.
        RefusedError: this host can verify none of the targets.
    """
    checkpoint = open_checkpoint(request, progress)
    find_protocol(checkpoint.path, request.decision_protocol)
    config = read_hub_config(checkpoint.path)
    targets = runnable_targets(request.targets)
    if config.model.has_experts and not request.targets:
        targets = tuple(t for t in targets if t.precision is Precision.FLOAT32)
    return make_plan(checkpoint, config, request, targets=targets)


def make_plan(
    checkpoint: Checkpoint,
    config: HubConfig,
    request: CompileRequest,
    *,
    targets: tuple[CpuTarget, ...],
) -> CompilePlan:
    """Decide kind, head and length of an opened checkpoint.

    Raises:
        UsageError: the checkpoint cannot be compiled as asked.
    """
    spec = match(config)
    model = config.model
    tables = {"vocab_size": model.vocab_size, "type_vocab_size": model.type_vocab_size or 0}
    refuse_beyond_weights(checkpoint, model.file, tables)
    num_labels = stored_label_count({name: t.shape for name, t in checkpoint.tensors.items()})
    kind = resolve_kind(config, spec, request.asked_kind, num_labels)
    conversation = conversation_template(config)
    limit = length_limit(config, spec, request.max_sequence_length)
    return CompilePlan(
        checkpoint=checkpoint,
        config=config,
        spec=spec,
        kind=kind,
        task=make_task(config, spec, kind, request, num_labels),
        decision=decision_of(config, checkpoint, limit.rule.max_tokens),
        limit=limit,
        targets=targets,
        conversation=conversation,
        tokenizer_warnings=(
            *_tokenizer_warnings(config),
            *conversation_warnings(config, conversation),
        ),
    )


def _tokenizer_warnings(config: HubConfig) -> tuple[str, ...]:
    file, rows = config.tokenizer.tokenizer, config.model.vocab_size
    tokenizer = open_tokenizer(file)
    check_special_tokens(tokenizer, file, rows)
    return vocabulary_warnings(tokenizer, file.name, rows)


def verify_stage(
    stage: Path,
    draft: Manifest,
    reference: ReferenceOutputs,
    built: BuiltTargets,
    progress: Progress,
) -> tuple[ParityReport, ...]:
    """Run every built target in a process of its own."""
    reports = []
    for target in draft.targets:
        with progress.stage(f"verify {target.name}"):
            reports.append(
                verify_target(
                    stage,
                    target,
                    reference.probes,
                    reference.outputs,
                    reference_name=reference.name,
                    threads=built.threads,
                )
            )
    return tuple(reports)


def verify_program(
    stage: Path, draft: Manifest, reference: ReferenceOutputs, progress: Progress
) -> tuple[ParityReport, ...]:
    """Read the kept program of float32, if one is kept, and hold it to the reference."""
    reports = []
    for kept in draft.program:
        if kept.precision is Precision.FLOAT32:
            with progress.stage(f"verify {PROGRAM_NAME}"):
                model = load_program(stage, kept, draft)
                offset = draft.model.position_offset
                found = run_probes(model, reference.probes, offset, progress)
                reports.append(
                    judge_program(found, reference.outputs, reference.probes, reference.name)
                )
    return tuple(reports)


def _build_json(
    plan: CompilePlan,
    request: CompileRequest,
    reports: tuple[ParityReport, ...],
    progress: Progress,
) -> dict[str, object]:
    record = build_record(times=progress.times(), labels=request.labels, warnings=plan.warnings)
    return record | {"parity": {report.target: dict(report.figures) for report in reports}}
