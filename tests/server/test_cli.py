"""The program as a process: exit codes and the one error line."""

import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infinity_v3.server.config import TOPICS, all_options

pytestmark = pytest.mark.e2e


def run(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "infinity_v3.server.cli", *arguments],
        env={"PATH": "/usr/bin:/bin", "HOME": tempfile.gettempdir(), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def error_line(done: "subprocess.CompletedProcess[str]") -> str:
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("--modl-id", "x"), "did you mean --model-id?"),
        (("--model-id", "m", "--port", "x"), "--port x"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], fragment: str) -> None:
    """The whole table of sentences is in test_config_refusals."""
    done = run(*arguments)
    assert done.returncode == 2
    assert fragment in error_line(done)
    assert done.stdout == ""


@pytest.mark.parametrize("argument", ["--help", "--version", "--print-config"])
def test_an_answer_that_cannot_be_written_is_one_sentence(argument: str) -> None:
    command = [sys.executable, "-m", "infinity_v3.server.cli", argument]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert error_line(done) == "error: the output could not be written: No space left on device"


def test_version() -> None:
    version = run("--version")
    assert version.returncode == 0
    assert version.stdout.startswith("infinity_v3 ")


def test_help_reads_well_in_80_columns() -> None:
    done = run("-h", COLUMNS="80")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    titles = re.findall(r"^(\w+):$", done.stdout, re.MULTILINE)
    assert titles == [*TOPICS, "Other"]
    for option in all_options():
        found = re.search(rf"^  (?:-p, )?--{option.name} .*$", done.stdout, re.MULTILINE)
        assert found is not None
        assert found[0].endswith(" *") is option.is_per_model
        assert f"[env: {option.env_name}]" in done.stdout
    assert run("--help", COLUMNS="80").stdout == done.stdout


def test_an_empty_key_variable_never_opens_the_server() -> None:
    done = run(*LOCAL, INFINITY_API_KEY="")
    assert done.returncode == 2
    assert "INFINITY_API_KEY is set but empty" in error_line(done)


def test_missing_configuration_file() -> None:
    done = run("--config", "/nonexistent.toml")
    assert done.returncode == 2
    assert "--config /nonexistent.toml" in error_line(done)


def test_a_host_name_that_does_not_resolve() -> None:
    done = run("--model-id", "m", "--hostname", "no-such-host.invalid", "--port", "0")
    assert done.returncode == 2
    assert "--hostname no-such-host.invalid" in error_line(done)
    assert "Errno" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "is_warned"),
    [
        (("--hostname", "0.0.0.0"), True),
        (("--hostname", "0.0.0.0", "--api-key", "k"), False),
        (("--hostname", "127.0.0.1"), False),
        (("--hostname", "localhost"), False),
    ],
)
def test_an_open_server_is_a_warning(arguments: tuple[str, ...], is_warned: bool) -> None:
    ports = ("--port", "0", "--prometheus-port", "0")
    done = run("--model-id", "/nonexistent", *ports, *arguments)
    assert ("anyone who reaches this port can use it" in done.stderr) is is_warned


def test_print_config_warns_of_unknown_variables() -> None:
    done = run("--print-config", "--model-id", "m", INFINITY_PROT="1")
    assert done.returncode == 0
    assert "warning: environment variable INFINITY_PROT" in done.stderr
    assert "INFINITY_PROT" not in done.stdout


def test_print_config_opens_no_model() -> None:
    done = run("--print-config", "--model-id", "/nonexistent", INFINITY_API_KEY="hush")
    assert done.returncode == 0
    assert "model-id=/nonexistent (command line)\n" in done.stdout
    assert "api-key=*** (env INFINITY_API_KEY)\n" in done.stdout
    assert "hush" not in done.stdout + done.stderr


def test_report_for_programs() -> None:
    done = run("--print-config=json", "--model-id", "m", INFINITY_PROT="1", PORT="81")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["serve"]["port"] == {"value": 81, "origin": "env PORT"}
    assert report["models"][0]["model-id"] == {"value": "m", "origin": "command line"}
    assert "warning: environment variable INFINITY_PROT" in done.stderr


def test_a_short_flag_and_equals_signs() -> None:
    done = run("--print-config", "-p", "81", "--model-id=m", "--http2", "--json-output=false")
    for line in ("port=81", "http2=true", "json-output=false"):
        assert f"{line} (command line)\n" in done.stdout


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


LOCAL = ("--hostname", "127.0.0.1", "--model-id", "/nonexistent")


def test_busy_port_ends_before_loading(busy_port: int) -> None:
    done = run(*LOCAL, "--port", str(busy_port), "--prometheus-port", "0")
    assert done.returncode == 1
    assert f"--port {busy_port}: in use" in error_line(done)


def test_busy_explicit_metrics_port(busy_port: int) -> None:
    done = run(*LOCAL, "--port", "0", "--prometheus-port", str(busy_port))
    assert done.returncode == 1
    assert f"--prometheus-port {busy_port}: in use" in error_line(done)


def test_missing_model_ends_cleanly() -> None:
    done = run(*LOCAL, "--port", "0", "--prometheus-port", "0")
    assert done.returncode == 2
    assert "no such directory" in error_line(done)


def test_broken_artifact_is_refused(tmp_path: Path) -> None:
    (tmp_path / "artifact.json").write_text("{}", encoding="utf-8")
    tmp_path.chmod(0o700)
    done = run(*LOCAL[:3], str(tmp_path), "--port", "0", "--prometheus-port", "0")
    assert done.returncode == 3
    assert "artifact.json" in error_line(done)


def test_json_logs_are_objects() -> None:
    done = run(*LOCAL, "--port", "0", "--prometheus-port", "0", "--json-output")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("error: ")]
    records = [json.loads(line) for line in lines]
    assert {"time", "level", "message"} <= set(records[0])
    assert any(record["message"] == "json-output=true (command line)" for record in records)


def test_unknown_variable_is_only_a_warning() -> None:
    done = run(*LOCAL, "--port", "0", "--prometheus-port", "0", INFINITY_PROT="1")
    assert done.returncode == 2
    assert "INFINITY_PROT" in done.stderr
    assert "did you mean INFINITY_PORT?" in done.stderr
