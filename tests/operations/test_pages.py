"""What the operations pages name exists: options, variables, metrics, exit codes, statuses."""

import re
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import InfinityError, RefusedError, RunFailedError, UsageError
from infinity_v3.server.app import all_routes
from infinity_v3.server.config import all_options
from infinity_v3.server.errors import ERROR_TABLE

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "operations"
OWN_PAGES = ("README", "container", "systemd", "kubernetes", "capacity", "upgrade", "runbook")
OF_OTHER_PROGRAMS = {
    *("--arg", "--dry-run", "--json", "--tool", "--tag", "--artifact"),  # build.py
    *("--checkpoint", "--stop-timeout", "--cpus", "--cpuset-cpus"),
    "--latency-bound-ms",  # infinity-compile tune
}
FLAG = re.compile(r"`(?:infinity_v3 )?(?P<flag>--[a-z0-9-]+)[^`]*`")
SPAN = re.compile(r"`(?P<text>[^`\n]+)`")


@pytest.fixture(params=OWN_PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return (FOLDER / f"{request.param}.md").read_text()


def test_options_exist(page: str) -> None:
    known = {f"--{option.name}" for option in all_options()}
    named = {found["flag"] for found in FLAG.finditer(page)}
    assert named - known - OF_OTHER_PROGRAMS == set()


def test_variables_exist(page: str) -> None:
    known = {option.env_name for option in all_options()}
    named = set(re.findall(r"\bINFINITY_[A-Z_]+\b", page)) - {"INFINITY_"}
    assert named - known == set()


def test_metrics_exist(page: str) -> None:
    table = (ROOT / "docs" / "http-api.md").read_text()
    spans = [found["text"] for found in SPAN.finditer(page)]
    words = {word for span in spans for word in re.findall(r"\b(?:te|infinity)_[a-z_]+", span)}
    metrics = words - {"infinity_v3", "infinity_v"}
    assert [name for name in sorted(metrics) if not _is_listed(name, table)] == []


def _is_listed(name: str, table: str) -> bool:
    # The table of the API page names some by their family ("and their relatives").
    if f"`{name}`" in table:
        return True
    return name == "te_request_tokenization_duration"


def test_paths_exist(page: str) -> None:
    known = {route.path for route in all_routes()}
    folders = ("/srv", "/var", "/opt", "/etc", "/proc", "/tmp", "/models")
    spans = [found["text"] for found in SPAN.finditer(page)]
    paths = {text for text in spans if re.fullmatch(r"/[a-z0-9_/.]+", text)}
    assert {path for path in paths if not path.startswith(folders)} - known == set()


def test_runbook_has_every_exit_code() -> None:
    text = (FOLDER / "runbook.md").read_text()
    rows = re.findall(r"^\| (\d+(?:, \d+)?)[, ]", text, re.MULTILINE)
    codes = {int(code) for row in rows for code in row.split(", ")}
    errors: tuple[type[InfinityError], ...] = (RunFailedError, UsageError, RefusedError)
    assert {0, 130, 143} | {error.exit_code for error in errors} <= codes


def test_runbook_has_every_status() -> None:
    text = (FOLDER / "runbook.md").read_text()
    _, _, table = text.partition("## Clients see an error")
    listed = {int(status) for status in re.findall(r"\b[45]\d\d\b", table)}
    assert {row.status for row in ERROR_TABLE.values()} <= listed
