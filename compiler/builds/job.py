"""The steps of one model, as a job of the pool: obtain, check, push."""

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infinity_v3.artifacts.errors import GateFailedError, InfinityError, RefusedError
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.compiler.builds.bounds import artifact_bytes, check_bounds
from infinity_v3.compiler.builds.commands import (
    compile_command,
    pull_command,
    push_command,
    sign_command,
)
from infinity_v3.compiler.builds.entry import ModelEntry
from infinity_v3.compiler.builds.figures import worst_figure
from infinity_v3.compiler.builds.outcome import Outcome, Result, error_code, result_of
from infinity_v3.compiler.builds.plan import ModelPlan, open_built
from infinity_v3.compiler.builds.pool import Command, Ended, Job

ERROR_MARK = "error: "


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What is the same for all jobs.

    Attributes:
        registry: where artifacts are pushed; None = nowhere.
        threads: of each compile.
        sign_key: private key that signs what is pushed; None = pushed unsigned.
    """

    registry: str | None
    threads: int
    sign_key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An artifact, wherever it lies; `path` is None where only the registry has it."""

    artifact_id: str
    manifest: Manifest
    build: Mapping[str, object]
    path: Path | None


class StepFailedError(InfinityError):
    """A child process failed; carries its exit code and its last lines."""

    def __init__(self, step: str, ended: Ended) -> None:
        """Find the sentence that the child ended with."""
        sentences = [line for line in ended.lines if line.startswith(ERROR_MARK)]
        super().__init__(sentences[-1].removeprefix(ERROR_MARK) if sentences else _how(step, ended))
        self.exit_code = error_code(ended.exit_code)
        self.lines = ended.lines


def model_job(
    plan: ModelPlan, settings: JobSettings, clock: Callable[[], float] = time.monotonic
) -> Job[Outcome]:
    """Do what a plan says, and return how it ended; whatever fails is in the outcome."""
    # Nothing runs before the pool asks for the first command, so neither does the clock.
    begin_s = clock()
    found: list[Outcome] = [_begun(plan)]
    try:
        yield from _steps(plan, settings, found)
    except InfinityError as error:
        found.append(_failed(found[-1], error))
    return replace(found[-1], duration_s=clock() - begin_s)


def unplanned(entry: ModelEntry, error: InfinityError) -> Outcome:
    """The outcome of a model whose inputs could not be read, or must not be built from."""
    begun = Outcome(name=entry.name, version=entry.version, result=Result.LEFT_OUT)
    return _failed(begun, error)


def left_out(plan: ModelPlan, reason: str) -> Outcome:
    """The outcome of a model that was not begun, or cut short."""
    return replace(_begun(plan), message=reason)


def _begun(plan: ModelPlan) -> Outcome:
    return Outcome(
        name=plan.entry.name,
        version=plan.version,
        result=Result.LEFT_OUT,
        build_key=plan.key,
        push_to=plan.entry.push_to,
    )


def _steps(
    plan: ModelPlan, settings: JobSettings, known: list[Outcome]
) -> Generator[Command, Ended, None]:
    """Append to `known` what is known of the outcome so far."""
    is_built = False
    if plan.published is None and not plan.is_there:
        yield from _obtain(plan, settings)
        is_built = plan.elsewhere is None
    found = _find(plan)
    outcome = replace(_described(known[-1], found), message=_message(plan, settings))
    known.append(outcome)
    _check_identity(plan, found)
    gates = check_bounds(plan.entry.gates, found.manifest, found.build)
    known.append(replace(outcome, gates=gates))
    _check_gates(gates)
    yield from _publish(plan, settings)
    known.append(replace(known[-1], result=Result.BUILT if is_built else Result.SKIPPED))


def _obtain(plan: ModelPlan, settings: JobSettings) -> Generator[Command, Ended, None]:
    if plan.elsewhere is not None and settings.registry is not None:
        yield from _run(
            pull_command(plan.entry.name, plan.elsewhere, registry=settings.registry, out=plan.out)
        )
        return
    yield from _run(
        compile_command(
            plan.entry, plan.source, key=plan.key, out=plan.out, threads=settings.threads
        )
    )


def _publish(plan: ModelPlan, settings: JobSettings) -> Generator[Command, Ended, None]:
    """Push what is not there, sign what is there unsigned."""
    registry, key = settings.registry, settings.sign_key
    if registry is None:
        return
    if plan.published is None:
        yield from _run(
            push_command(plan.version, registry=registry, artifact=plan.out, sign_key=key)
        )
    elif plan.published.lacks_signature and key is not None:
        yield from _run(
            sign_command(plan.entry.name, plan.version, registry=registry, sign_key=key)
        )


def _run(command: Command) -> Generator[Command, Ended, None]:
    ended = yield command
    if ended.exit_code != 0:
        raise StepFailedError(command.step, ended)


def _find(plan: ModelPlan) -> Found:
    if plan.published is not None:
        return Found(
            artifact_id=plan.published.artifact_id,
            manifest=plan.published.manifest,
            build=plan.published.build,
            path=None,
        )
    artifact, build = open_built(plan.out)
    return Found(
        artifact_id=artifact.artifact_id,
        manifest=artifact.manifest,
        build=build,
        path=plan.out,
    )


def _described(outcome: Outcome, found: Found) -> Outcome:
    worst = worst_figure(found.manifest, found.build)
    return replace(
        outcome,
        artifact_id=found.artifact_id,
        num_bytes=artifact_bytes(found.manifest),
        worst=None if worst is None else worst.text,
        path=found.path,
    )


def _message(plan: ModelPlan, settings: JobSettings) -> str:
    """Why nothing was built, or why something was although the registry has it; else ""."""
    if plan.published is not None:
        signed = "; signed now" if plan.published.lacks_signature else ""
        return f"the registry has {plan.title} with the same inputs{signed}"
    if plan.is_damaged:
        return f"the registry lacked files of {plan.title}; pushed again"
    if plan.is_there:
        return f"{plan.out} was built from the same inputs before" + (
            "" if settings.registry is None else "; pushed now"
        )
    if plan.elsewhere is not None:
        return f"the registry had it as {plan.entry.name}=={plan.elsewhere}; pushed again as this"
    return ""


def _check_identity(plan: ModelPlan, found: Found) -> None:
    """The label only says where to look; what was read and what came out is in the manifest."""
    read = {file.path: file.sha256 for file in found.manifest.source.files}
    if plan.source.files and read != dict(plan.source.files):
        changed = sorted(
            path
            for path in {*read, *plan.source.files}
            if read.get(path) != plan.source.files.get(path)
        )
        raise RefusedError(
            f"its manifest says that other files were read: {', '.join(changed[:3])}; the "
            "checkpoint changed while it was compiled: build again under another version"
        )
    for file, digest in plan.entry.expected_files.items():
        if read.get(file) != digest:
            raise RefusedError(
                f"expect: {file}: expected sha256 {digest}, its manifest says {read.get(file)}"
            )
    if plan.entry.expected_id not in (None, found.artifact_id):
        raise RefusedError(
            f"expect-id: expected {plan.entry.expected_id}, found {found.artifact_id}; the tool, "
            "its libraries or the checkpoint are others than those that made it"
        )


def _check_gates(gates: tuple[GateFigure, ...]) -> None:
    failed = [figure for figure in gates if not figure.passed]
    if failed:
        raise GateFailedError("; ".join(gate_sentence(figure) for figure in failed))


def gate_sentence(figure: GateFigure) -> str:
    """Return what a gate asked for and found, in one sentence."""
    detail = f" ({figure.detail})" if figure.detail else ""
    return (
        f"{figure.gate} of {figure.subject}: expected {figure.bound}, "
        f"found {figure.candidate or 'no figure'}{detail}"
    )


def _failed(outcome: Outcome, error: InfinityError) -> Outcome:
    return replace(
        outcome,
        result=result_of(error.exit_code),
        exit_code=error.exit_code,
        message=str(error),
        log=error.lines if isinstance(error, StepFailedError) else (),
    )


def _how(step: str, ended: Ended) -> str:
    if ended.exit_code < 0:
        return f"{step} was ended by signal {-ended.exit_code}; is there enough memory?"
    return f"{step} ended with exit code {ended.exit_code} and said nothing"
