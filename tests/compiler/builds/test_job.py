"""The steps of one model, driven by hand: what is run, what is checked, how it ends."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from build_plans import (
    CONFIG_DIGEST,
    FIGURES,
    KEY,
    SOURCE,
    TARGET,
    make_entry,
    make_plan,
    write_built,
)
from infinity_v3.artifacts.errors import (
    GateFailedError,
    InfinityError,
    RefusedError,
    RunFailedError,
    UsageError,
)
from infinity_v3.compiler.builds.commands import (
    child_environment,
    compile_command,
    flag_words,
    sign_command,
)
from infinity_v3.compiler.builds.entry import GateBounds
from infinity_v3.compiler.builds.job import JobSettings, left_out, model_job, unplanned
from infinity_v3.compiler.builds.outcome import Outcome, Result, worst_error
from infinity_v3.compiler.builds.plan import ModelPlan, open_built
from infinity_v3.compiler.builds.pool import Command, Ended
from infinity_v3.compiler.builds.published import PublishedBuild
from infinity_v3.compiler.options import compile_options, parse_texts

ALONE = JobSettings(registry=None, threads=2)
PUSHING = JobSettings(registry="/srv/registry", threads=2, sign_key=Path("/keys/ci.pem"))
DONE = Ended(exit_code=0, lines=())
Answer = Callable[[Command], Ended]


def drive(plan: ModelPlan, settings: JobSettings, answer: Answer) -> tuple[list[str], Outcome]:
    """Run a job to its end; returns the steps that it asked for, and its outcome."""
    now_s = iter((10.0, 12.5))
    job = model_job(plan, settings, lambda: next(now_s))
    steps: list[str] = []
    ended: Ended | None = None
    while True:
        try:
            command = next(job) if ended is None else job.send(ended)
        except StopIteration as end:
            outcome = end.value
            assert isinstance(outcome, Outcome)
            return steps, outcome
        steps.append(command.step)
        ended = answer(command)


def building(plan: ModelPlan, **built: object) -> Answer:
    """Answer a compile or a pull with an artifact, and a push with success."""

    def answer(command: Command) -> Ended:
        if command.step in ("compile", "pull"):
            write_built(plan.out, **built)  # type: ignore[arg-type]  # its keywords
        return DONE

    return answer


@pytest.fixture
def plan(tmp_path: Path) -> ModelPlan:
    return make_plan(tmp_path / "one" / "1.0")


def test_compile_check_push(plan: ModelPlan) -> None:
    steps, outcome = drive(plan, PUSHING, building(plan))
    assert steps == ["compile", "push"]
    artifact, _ = open_built(plan.out)
    assert outcome == Outcome(
        name="one",
        version="1.0",
        result=Result.BUILT,
        build_key=KEY,
        artifact_id=artifact.artifact_id,
        num_bytes=sum(entry.num_bytes for entry in artifact.manifest.files),
        duration_s=2.5,
        # 4e-6 of 2e-5 is more than 1e-6 of 1e-5.
        worst=f"pooled_mean.max_abs 4e-06 of {TARGET}",
        path=plan.out,
    )


def test_without_a_registry_nothing_is_pushed(plan: ModelPlan) -> None:
    steps, outcome = drive(plan, ALONE, building(plan))
    assert (steps, outcome.result) == (["compile"], Result.BUILT)


def test_what_lies_there_is_only_pushed(plan: ModelPlan) -> None:
    write_built(plan.out)
    steps, outcome = drive(replace(plan, is_there=True), PUSHING, building(plan))
    assert (steps, outcome.result) == (["push"], Result.SKIPPED)
    assert outcome.message == f"{plan.out} was built from the same inputs before; pushed now"


@pytest.mark.parametrize(
    ("is_there", "expected", "result"),
    [(True, ["push"], Result.SKIPPED), (False, ["compile", "push"], Result.BUILT)],
)
def test_what_the_registry_has_damaged_is_pushed_again(
    plan: ModelPlan, is_there: bool, expected: list[str], result: Result
) -> None:
    if is_there:
        write_built(plan.out)
    damaged = replace(plan, is_there=is_there, is_damaged=True)
    steps, outcome = drive(damaged, PUSHING, building(plan))
    assert (steps, outcome.result) == (expected, result)
    assert outcome.message == "the registry lacked files of one==1.0; pushed again"


def test_another_version_of_the_same_inputs_is_pulled(plan: ModelPlan) -> None:
    steps, outcome = drive(replace(plan, elsewhere="0.9"), PUSHING, building(plan))
    assert (steps, outcome.result) == (["pull", "push"], Result.SKIPPED)
    assert outcome.message == "the registry had it as one==0.9; pushed again as this"


def test_a_published_version_needs_nothing_but_still_its_gates(
    plan: ModelPlan, tmp_path: Path
) -> None:
    artifact = write_built(tmp_path / "other")
    _, build = open_built(artifact.path)
    published = PublishedBuild(
        version="1.0", artifact_id=artifact.artifact_id, manifest=artifact.manifest, build=build
    )
    there = replace(plan, published=published)
    steps, outcome = drive(there, PUSHING, building(plan))
    assert (steps, outcome.result, outcome.path) == ([], Result.SKIPPED, None)
    assert outcome.message == "the registry has one==1.0 with the same inputs"
    strict = replace(there, entry=make_entry(gates=GateBounds(max_abs=1e-6)))
    _, outcome = drive(strict, PUSHING, building(plan))
    assert (outcome.result, outcome.exit_code) == (Result.REFUSED, 4)


def test_a_published_version_without_our_signature_is_signed(
    plan: ModelPlan, tmp_path: Path
) -> None:
    artifact = write_built(tmp_path / "other")
    _, build = open_built(artifact.path)
    published = PublishedBuild(
        version="1.0",
        artifact_id=artifact.artifact_id,
        manifest=artifact.manifest,
        build=build,
        lacks_signature=True,
    )
    there = replace(plan, published=published)
    steps, outcome = drive(there, PUSHING, building(plan))
    assert (steps, outcome.result) == (["sign"], Result.SKIPPED)
    assert outcome.message == "the registry has one==1.0 with the same inputs; signed now"
    broken = Ended(exit_code=1, lines=("error: network",))
    _, outcome = drive(there, PUSHING, lambda _: broken)
    assert (outcome.result, outcome.message) == (Result.FAILED, "network")


def test_the_command_of_a_signature() -> None:
    command = sign_command("one", "1.0", registry="/srv/registry", sign_key=Path("/keys/ci.pem"))
    assert command.arguments[3:] == (
        "registry",
        "sign",
        "--registry=/srv/registry",
        "--key=/keys/ci.pem",
        "--",
        "one==1.0",
    )


@pytest.mark.parametrize(
    ("ended", "result", "code", "message"),
    [
        (Ended(exit_code=1, lines=("x", "error: disk full")), Result.FAILED, 1, "disk full"),
        (Ended(exit_code=2, lines=("error: no g++",)), Result.FAILED, 2, "no g++"),
        (Ended(exit_code=3, lines=("error: parity",)), Result.REFUSED, 3, "parity"),
        (Ended(exit_code=77, lines=()), Result.FAILED, 1, "compile ended with exit code 77 and "),
        (Ended(exit_code=-9, lines=()), Result.FAILED, 1, "compile was ended by signal 9; is "),
        (Ended(exit_code=143, lines=("error: terminated",)), Result.FAILED, 1, "terminated"),
    ],
)
def test_a_compile_that_fails(
    plan: ModelPlan, ended: Ended, result: Result, code: int, message: str
) -> None:
    steps, outcome = drive(plan, PUSHING, lambda _: ended)
    assert steps == ["compile"]
    assert (outcome.result, outcome.exit_code, outcome.log) == (result, code, ended.lines)
    assert outcome.message.startswith(message)
    assert outcome.artifact_id is None


def test_a_push_that_fails_leaves_the_artifact(plan: ModelPlan) -> None:
    def answer(command: Command) -> Ended:
        if command.step == "push":
            return Ended(exit_code=3, lines=("error: one==1.0 is another artifact",))
        return building(plan)(command)

    _, outcome = drive(plan, PUSHING, answer)
    assert (outcome.result, outcome.exit_code) == (Result.REFUSED, 3)
    assert outcome.message == "one==1.0 is another artifact"
    assert outcome.artifact_id is not None
    assert plan.out.is_dir()


GATES = GateBounds(
    min_cosine=0.999999,
    max_abs=1e-6,
    required_targets=(TARGET, "cpu-x86_64-avx2-f23"),
    max_size_mb=1,
)


def test_gates_are_held_before_a_push(plan: ModelPlan) -> None:
    strict = replace(plan, entry=make_entry(gates=GATES))
    steps, outcome = drive(strict, PUSHING, building(plan))
    assert steps == ["compile"], "a failed gate keeps it from being pushed"
    assert (outcome.result, outcome.exit_code) == (Result.REFUSED, 4)
    verdicts = [(f.gate, f.subject, f.candidate, f.bound, f.passed) for f in outcome.gates]
    assert verdicts == [
        ("required-targets", TARGET, "present", "present", True),
        ("required-targets", "cpu-x86_64-avx2-f23", "absent", "present", False),
        ("min-cosine", TARGET, "0.99999000", ">= 0.999999", False),
        ("max-abs", TARGET, "4e-06", "<= 1e-06", False),
        ("max-size-mb", "all files", "0.0 MB", "<= 1 MB", True),
    ]
    assert outcome.message == (
        "required-targets of cpu-x86_64-avx2-f23: expected present, found absent (targets: "
        f"{TARGET}; did you mean {TARGET}?); min-cosine of {TARGET}: expected >= 0.999999, found "
        f"0.99999000; max-abs of {TARGET}: expected <= 1e-06, found 4e-06"
    )


def test_gates_that_hold(plan: ModelPlan) -> None:
    easy = GateBounds(min_cosine=0.9999, max_abs=1e-5, required_targets=(TARGET,))
    _, outcome = drive(replace(plan, entry=make_entry(gates=easy)), ALONE, building(plan))
    assert (outcome.result, len(outcome.gates)) == (Result.BUILT, 3)


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"pooled_mean.min_cosine": 0.9, "pooled_mean.batch_max_abs": 0.0},
        {**FIGURES, "pooled_mean.max_abs": True},
    ],
)
def test_a_figure_that_is_missing_passes_no_gate(
    plan: ModelPlan, figures: dict[str, float]
) -> None:
    entry = make_entry(gates=GateBounds(max_abs=1.0))
    _, outcome = drive(replace(plan, entry=entry), ALONE, building(plan, figures=figures))
    (figure,) = outcome.gates
    assert (figure.passed, figure.candidate) == (False, None)
    assert outcome.message.startswith(f"max-abs of {TARGET}: expected <= 1, found no figure (")


def test_other_files_than_those_of_the_key(plan: ModelPlan) -> None:
    steps, outcome = drive(plan, PUSHING, building(plan, config_digest="d" * 64))
    assert steps == ["compile"]
    assert (outcome.result, outcome.exit_code) == (Result.REFUSED, 3)
    assert outcome.message.startswith("its manifest says that other files were read: config.json; ")


def test_expected_files_and_id(plan: ModelPlan, tmp_path: Path) -> None:
    artifact = write_built(tmp_path / "reference")
    right = make_entry(
        expected_files={"config.json": CONFIG_DIGEST}, expected_id=artifact.artifact_id
    )
    _, outcome = drive(replace(plan, entry=right), ALONE, building(plan))
    assert outcome.result is Result.BUILT
    hub = replace(SOURCE, repository="org/one", revision="c0ffee", files={})
    for entry, sentence in (
        (make_entry(expected_files={"config.json": "0" * 64}), "expect: config.json: expected "),
        (make_entry(expected_id="sha256:" + "0" * 64), "expect-id: expected sha256:0000"),
    ):
        there = replace(plan, entry=entry, source=hub, is_there=True)
        _, outcome = drive(there, PUSHING, building(plan))
        assert (outcome.result, outcome.exit_code) == (Result.REFUSED, 3)
        assert outcome.message.startswith(sentence)


def test_outcomes_of_what_was_not_run(plan: ModelPlan) -> None:
    outcome = left_out(plan, "the run ended")
    assert (outcome.result, outcome.exit_code, outcome.build_key) == (Result.LEFT_OUT, 0, KEY)
    failed = unplanned(make_entry(version="{key}"), UsageError("no such directory"))
    assert (failed.title, failed.result, failed.exit_code) == ("one=={key}", Result.FAILED, 2)


def test_the_worst_failure_names_the_run() -> None:
    def failed(error: InfinityError) -> Outcome:
        return unplanned(make_entry(), error)

    one, two = failed(RunFailedError("disk")), failed(UsageError("option"))
    gate, refused = failed(GateFailedError("cosine")), failed(RefusedError("parity"))
    good = Outcome(name="one", version="1.0", result=Result.BUILT)
    for outcomes, kind, sentence in (
        ([one], RunFailedError, "one==1.0: disk"),
        ([one, two, good], UsageError, "one==1.0: option, and 1 more above"),
        ([gate, two, one], GateFailedError, "one==1.0: cosine, and 2 more above"),
        ([gate, one, refused], RefusedError, "one==1.0: parity, and 2 more above"),
    ):
        error = worst_error(outcomes)
        assert type(error) is kind
        assert str(error) == sentence
    assert worst_error([good]) is None


def test_the_command_of_a_compile() -> None:
    entry = make_entry(
        options={"target": (TARGET, "b"), "embed-limit-mb": 3},
        request={"labels": {"team": "a=b"}},
    )
    source = replace(SOURCE, repository="org/one", revision="c0ffee")
    command = compile_command(entry, source, key="abc", out=Path("/out/one"), threads=4)
    assert command.arguments[1:] == (
        "-m",
        "infinity_v3.compiler.cli",
        "model",
        f"--target={TARGET}",
        "--target=b",
        "--embed-limit-mb=3",
        "--out=/out/one",
        "--name=one",
        "--label=team=a=b",
        "--label=build-key=abc",
        "--threads=4",
        "--revision=c0ffee",
        "--",
        "org/one",
    )
    own = compile_command(
        make_entry(request={"threads": 1}), SOURCE, key="abc", out=Path("/o"), threads=4
    )
    assert "--threads=1" in own.arguments


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("name", "-x"),
        ("threads", 3),
        ("pooling", ("cls", "mean")),
        ("label", {"a": "1=2", "b": ""}),
    ],
)
def test_flags_are_read_back_as_they_were(
    key: str, raw: str | int | tuple[str, ...] | dict[str, str]
) -> None:
    option = next(option for option in compile_options() if option.key == key)
    texts = tuple(word.removeprefix(f"--{key}=") for word in flag_words(key, raw))
    assert parse_texts(option, texts, key) == raw


def test_switches() -> None:
    assert flag_words("keep-program", True) == ("--keep-program",)
    assert flag_words("keep-program", False) == ()


def test_variables_of_model_reach_no_child() -> None:
    environ = {"INFINITY_COMPILE_TARGET": "x", "INFINITY_REGISTRY": "r", "PATH": "/bin"}
    assert child_environment(environ) == {"INFINITY_REGISTRY": "r", "PATH": "/bin"}
