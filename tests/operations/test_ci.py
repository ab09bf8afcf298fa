"""The pipelines and their page: valid files whose commands our own parser accepts."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.compiler.builds.build_file import BUILD_KEYS, model_keys, read_build_file
from infinity_v3.compiler.builds.command import build
from infinity_v3.compiler.cli import cli
from infinity_v3.compiler.gates.policy import read_policy
from infinity_v3.compiler.registry.init import POLICY

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "ci.md"
GITHUB = ROOT / "docs" / "operations" / "ci" / "github-actions.yml"
GITLAB = ROOT / "docs" / "operations" / "ci" / "gitlab-ci.yml"
PROGRAM = "infinity-compile"
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
URL = re.compile(r"\b[a-z][a-z0-9+]*://[^\s\"'`)]+")
ENDS_COMMAND = {"|", "||", "&&", ";", ">", ">>", "<"}

Thing = Mapping[str, Any]

# Of the published JSON schemas (github-workflow.json, gitlab's ci.json), what our files use.
WORKFLOW_KEYS = {
    *("name", "run-name", "on", "permissions", "env", "defaults", "concurrency", "jobs"),
}
JOB_KEYS = {
    *("name", "needs", "if", "runs-on", "permissions", "environment", "concurrency", "outputs"),
    *("env", "defaults", "steps", "timeout-minutes", "strategy", "continue-on-error", "container"),
    "services",
}
STEP_KEYS = {
    *("id", "if", "name", "uses", "run", "working-directory", "shell", "with", "env"),
    *("continue-on-error", "timeout-minutes"),
}
EVENTS = {"pull_request", "push", "workflow_dispatch", "schedule"}
PERMISSIONS = {"read", "write", "none"}
GITLAB_GLOBAL = {"stages", "default", "workflow", "include", "variables", "spec"}
GITLAB_JOB_KEYS = {
    *("stage", "script", "before_script", "after_script", "rules", "needs", "artifacts", "cache"),
    *("environment", "image", "tags", "timeout", "resource_group", "variables", "retry", "when"),
    *("allow_failure", "interruptible", "extends", "services", "parallel", "dependencies"),
}
GITLAB_RULE_KEYS = {"if", "changes", "exists", "when", "allow_failure", "variables", "needs"}
GITLAB_ARTIFACT_KEYS = {
    *("paths", "exclude", "expire_in", "expose_as", "name", "untracked", "when", "reports"),
    "access",
}


@pytest.fixture(scope="module")
def workflow() -> Thing:
    # YAML 1.1 reads the key `on` as a boolean.
    document: dict[Any, Any] = yaml.safe_load(GITHUB.read_text())
    return {("on" if key is True else key): value for key, value in document.items()}


@pytest.fixture(scope="module")
def pipeline() -> Thing:
    document: Thing = yaml.safe_load(GITLAB.read_text())
    return document


@pytest.fixture(scope="module")
def gitlab_jobs(pipeline: Thing) -> Mapping[str, Thing]:
    return {name: job for name, job in pipeline.items() if name not in GITLAB_GLOBAL}


def commands(script: str) -> Iterator[list[str]]:
    """Every call of the program in a shell script, without what the shell itself reads."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = list(lexer) if PROGRAM in line else []
        while PROGRAM in words:
            words = words[words.index(PROGRAM) + 1 :]
            end = next((i for i, word in enumerate(words) if word in ENDS_COMMAND), len(words))
            yield words[:end]


def page_scripts() -> list[str]:
    return [found["text"] for found in FENCE.finditer(PAGE.read_text()) if not found["language"]]


def page_tables() -> list[str]:
    return [f["text"] for f in FENCE.finditer(PAGE.read_text()) if f["language"] == "toml"]


def github_scripts() -> list[str]:
    document = yaml.safe_load(GITHUB.read_text())
    return [s["run"] for job in document["jobs"].values() for s in job["steps"] if "run" in s]


def gitlab_scripts() -> list[str]:
    document = yaml.safe_load(GITLAB.read_text())
    jobs = [job for name, job in document.items() if name not in GITLAB_GLOBAL]
    return [line for job in jobs for line in job["script"]]


def all_commands() -> list[list[str]]:
    scripts = (*page_scripts(), *github_scripts(), *gitlab_scripts())
    return [words for script in scripts for words in commands(script)]


def parse(words: Sequence[str]) -> click.Context:
    """Parse a command line as the program does, and run nothing."""
    command: click.Command = cli
    rest = list(words)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(click.Context(command), rest)
        assert found is not None, f"{words}: no such command"
        command = found
    return command.make_context(name, rest)


@pytest.mark.parametrize("words", all_commands(), ids=" ".join)
def test_our_own_parser_accepts_every_command(words: list[str]) -> None:
    parse(words)


def test_the_parser_of_this_test_refuses() -> None:
    (words,) = commands("a | infinity-compile build models.toml --jbs 2 > x")
    assert words == ["build", "models.toml", "--jbs", "2"]
    with pytest.raises(click.UsageError):
        parse(words)


def test_every_place_has_commands() -> None:
    for scripts in (page_scripts(), github_scripts(), gitlab_scripts()):
        found = [words for script in scripts for words in commands(script)]
        assert ["build", "models.toml", "--check"] in found
        assert any(words[:2] == ["registry", "promote"] and "prod" in words for words in found)


@pytest.mark.parametrize("path", [PAGE, GITHUB, GITLAB], ids=lambda path: path.name)
def test_no_host_is_named_but_examples(path: Path) -> None:
    hosts = {urlsplit(url).hostname or "" for url in URL.findall(path.read_text())}
    assert {host for host in hosts if not host.endswith("example.com")} == set()


def test_the_workflow_has_the_keys_of_one(workflow: Thing) -> None:
    assert set(workflow) <= WORKFLOW_KEYS
    assert {"on", "jobs"} <= set(workflow)
    assert set(workflow["on"]) <= EVENTS
    for event in workflow["on"].values():
        assert set(event) <= {"branches", "paths", "types", "tags"}
    assert set(workflow["permissions"].values()) <= PERMISSIONS
    assert set(workflow["concurrency"]) == {"group", "cancel-in-progress"}


def test_jobs_of_the_workflow(workflow: Thing) -> None:
    jobs = workflow["jobs"]
    for name, job in jobs.items():
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name)
        assert set(job) <= JOB_KEYS
        assert {"runs-on", "steps"} <= set(job)
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(jobs) - {name}
        assert set(job.get("permissions", {}).values()) <= PERMISSIONS


def test_steps_of_the_workflow(workflow: Thing) -> None:
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            assert set(step) <= STEP_KEYS
            assert ("uses" in step) != ("run" in step)
            assert "with" not in step or "uses" in step
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40}", step["uses"]), "not pinned"
            # What others can write into never becomes part of a script.
            assert "${{" not in step.get("run", "")


def test_what_a_job_takes_another_made(workflow: Thing) -> None:
    def names(action: str) -> dict[str, set[str]]:
        return {
            job: {s["with"]["name"] for s in body["steps"] if action in s.get("uses", "")}
            for job, body in workflow["jobs"].items()
        }

    uploads, downloads = names("upload-artifact"), names("download-artifact")
    for job, wanted in downloads.items():
        needs = workflow["jobs"][job].get("needs", [])
        made = {n for one in ([needs] if isinstance(needs, str) else needs) for n in uploads[one]}
        assert wanted <= made


def test_a_key_that_was_written_is_forgotten(workflow: Thing) -> None:
    for job in workflow["jobs"].values():
        runs = [step.get("run", "") for step in job["steps"]]
        if any('> "$RUNNER_TEMP/signing.pem"' in run for run in runs):
            last = job["steps"][-1]
            assert last["run"] == 'rm -f "$RUNNER_TEMP/signing.pem"'
            assert last["if"] == "always()"


def test_the_pipeline_has_the_keys_of_one(
    pipeline: Thing, gitlab_jobs: Mapping[str, Thing]
) -> None:
    assert set(pipeline["default"]) <= GITLAB_JOB_KEYS - {"script", "stage"}
    for rule in pipeline["workflow"]["rules"]:
        assert set(rule) <= GITLAB_RULE_KEYS
    assert [job["stage"] for job in gitlab_jobs.values()] == pipeline["stages"]


def test_jobs_of_the_pipeline(pipeline: Thing, gitlab_jobs: Mapping[str, Thing]) -> None:
    for name, job in gitlab_jobs.items():
        assert set(job) <= GITLAB_JOB_KEYS
        assert job["script"]
        assert all(isinstance(line, str) for line in job["script"])
        assert set(job.get("needs", [])) <= set(gitlab_jobs) - {name}
        for rule in job.get("rules", []):
            assert set(rule) <= GITLAB_RULE_KEYS
        artifacts = job.get("artifacts", {})
        assert set(artifacts) <= GITLAB_ARTIFACT_KEYS
        assert artifacts.get("when", "on_success") in {"on_success", "on_failure", "always"}


def test_the_junit_file_is_reported(gitlab_jobs: Mapping[str, Thing]) -> None:
    made = [w for w in map(list, _commands_of(gitlab_jobs["build"])) if "--junit" in w]
    (words,) = made
    reported = gitlab_jobs["build"]["artifacts"]["reports"]["junit"]
    assert reported == words[words.index("--junit") + 1]


def _commands_of(job: Thing) -> Iterator[list[str]]:
    for script in job["script"]:
        yield from commands(script)


def test_the_build_file_of_the_page_is_one(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(page_tables()[0])
    file = read_build_file(path)
    assert [entry.name for entry in file.models] == ["minilm", "reranker"]
    assert file.models[1].expected_files.keys() == {"model.safetensors"}


def test_the_page_gives_every_channel_of_its_commands_a_section() -> None:
    _, section = page_tables()
    policy = read_policy((POLICY + section).encode())
    words = [words for words in all_commands() if words[:2] == ["registry", "promote"]]
    channels = {words[words.index("--to") + 1] for words in words}
    assert channels == {"staging", "prod"}
    for channel in channels:
        policy.of(channel)
    with pytest.raises(InfinityError):
        read_policy(POLICY.encode()).of("staging")


def test_golden_requests_are_put_into_a_fresh_registry(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "promotion.md").read_text()
    (command,) = re.findall(r"^\$ (.*/golden/.*)$", page, re.MULTILINE)
    (tmp_path / "my-model.jsonl").write_text("{}\n")
    env = {**os.environ, "INFINITY_REGISTRY": str(tmp_path / "registry")}
    subprocess.run(["/bin/sh", "-ec", command], cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "registry" / "golden" / "my-model.jsonl").read_text() == "{}\n"


def test_pages_pin_one_revision_of_a_checkpoint() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    found = {one for page in pages for one in re.findall(r"\bc9745ed1[0-9a-f]*", page.read_text())}
    assert len(found) == 1


def test_the_page_names_every_key_and_option() -> None:
    text = PAGE.read_text()
    for key in model_keys():
        assert f"`{key}`" in text
    for key in BUILD_KEYS:
        assert re.search(rf"^\[?(build\.)?{key}\b", text, re.MULTILINE)
    options = {name for one in build.params for name in one.opts if name.startswith("--")}
    assert {name for name in options if f"`{name}" not in text} == set()
