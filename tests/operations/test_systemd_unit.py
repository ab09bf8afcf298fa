"""The unit file: systemd accepts it, it is confined, and it agrees with the server."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RefusedError, RunFailedError, UsageError
from infinity_v3.server.config_merge import load_configuration

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operations" / "systemd.md"
FOLDER = ROOT / "docs" / "operations" / "systemd"
PROGRAM = "/opt/infinity_v3/bin/infinity_v3"
MOST_EXPOSURE = 1.5
ANSWERING_REST_S = 5

Settings = Mapping[str, Sequence[str]]


def settings(name: str) -> Settings:
    """Every value of every key, in order, whichever section it stands in."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / name).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture(scope="module")
def unit() -> Settings:
    return settings("infinity_v3.service")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy that names a program that is there, as systemd wants it."""
    program = Path(sys.executable).with_name("infinity_v3")
    text = (FOLDER / "infinity_v3.service").read_text()
    assert PROGRAM in text
    path = tmp_path / "infinity_v3.service"
    path.write_text(text.replace(PROGRAM, str(program)))
    return path


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not on PATH: the unit file was not verified")
    return subprocess.run(
        [program, "--no-pager", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def with_drop_in(installed: Path) -> Path:
    folder = installed.with_name(f"{installed.name}.d")
    folder.mkdir()
    (folder / "float32.conf").write_bytes((FOLDER / "float32.conf").read_bytes())
    return installed


def test_systemd_accepts_it(installed: Path) -> None:
    done = analyze("verify", "--man=no", with_drop_in(installed))
    assert (done.returncode, done.stderr) == (0, "")


def test_exposure_is_what_the_page_says(installed: Path) -> None:
    done = analyze("security", "--offline=true", installed)
    found = re.search(r"Overall exposure level for \S+: (?P<level>[0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found["level"]) <= MOST_EXPOSURE, done.stdout
    written = re.search(
        r"exposure (?P<level>[0-9.]+) under systemd (?P<version>\d+)", PAGE.read_text()
    )
    assert written is not None
    if f"systemd {written['version']} " in analyze("--version").stdout:
        assert written["level"] == found["level"]


def test_it_restarts_after_what_may_work_again_and_not_after_the_rest(unit: Settings) -> None:
    assert unit["Restart"] == ["on-failure"]
    (fatal,) = unit["RestartPreventExitStatus"]
    assert {*map(int, fatal.split())} == {UsageError.exit_code, RefusedError.exit_code}
    assert str(RunFailedError.exit_code) not in fatal.split()
    assert unit["SuccessExitStatus"] == ["130 143"]


def test_stopping_lasts_longer_than_the_drain(unit: Settings) -> None:
    configuration = load_configuration({"config": [str(FOLDER / "config.toml")]}, {})
    (timeout,) = unit["TimeoutStopSec"]
    assert int(timeout) >= configuration.serve.drain_timeout_s + ANSWERING_REST_S
    assert unit["KillSignal"] == ["SIGTERM"]
    assert unit["Type"] == ["notify"]


def test_key_is_out_of_the_unit_and_out_of_the_arguments(unit: Settings) -> None:
    (command,) = unit["ExecStart"]
    program, *arguments = command.split()
    assert program == PROGRAM
    assert arguments == ["--config", "${CREDENTIALS_DIRECTORY}/config.toml"]
    assert unit["LoadCredential"] == ["config.toml:/etc/infinity_v3/config.toml"]
    secured = 'api-key = "secret"\n'
    text = (FOLDER / "config.toml").read_text().replace('# api-key = "..."\n', secured)
    assert secured in text


def test_key_of_the_credential_is_read(tmp_path: Path) -> None:
    text = (FOLDER / "config.toml").read_text()
    path = tmp_path / "config.toml"
    path.write_text(text.replace('# api-key = "..."', 'api-key = "secret"'))
    assert load_configuration({"config": [str(path)]}, {}).serve.api_key == "secret"


def test_caches_lie_where_the_service_may_write(unit: Settings) -> None:
    assert unit["ProtectSystem"] == ["strict"]
    (cache,) = unit["CacheDirectory"]
    assert unit["Environment"] == [f"XDG_CACHE_HOME=%C/{cache}"]
    assert unit["CacheDirectoryMode"] == ["0700"]
    assert unit["DynamicUser"] == ["yes"]


def test_float32_drop_in_closes_what_the_unit_leaves_open(unit: Settings) -> None:
    assert unit["MemoryDenyWriteExecute"] == ["no"]
    drop_in = settings("float32.conf")
    assert drop_in["MemoryDenyWriteExecute"] == ["yes"]
    (variable,) = drop_in["Environment"]
    name, _, value = variable.partition("=")
    config = load_configuration({"model-id": ["/srv/a"]}, {name: value})
    assert config.serve.models[0].dtype == "float32"
    assert config.warnings == ()
