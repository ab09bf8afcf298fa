"""What a serving process holds and what it says: no training framework, no compiler, no secrets."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from http_process import descendants, mapped_files
from server_process import ServerProcess

LAUNCHER = Path(__file__).parent.parent / "support" / "http_launcher.py"
KEY = "key-that-nobody-may-see"
TEXT = "text-that-nobody-may-see"
AUTHORIZED = {"authorization": f"Bearer {KEY}"}
FORBIDDEN = (
    *("torch", "transformers", "sentence_transformers", "huggingface_hub", "safetensors"),
    *("infinity_v3.compiler", "infinity_v3.model_specs"),
)


class Lean:
    """A server that has answered every kind of request, with files that it writes."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.modules_file = folder / "modules"
        self.request_log = folder / "requests.jsonl"

    def modules(self) -> set[str]:
        """Names in `sys.modules` of the process now."""
        self.modules_file.unlink(missing_ok=True)
        os.kill(self.server.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 10
        while not self.modules_file.exists():
            assert time.monotonic() < deadline, "the process did not list its modules"
            time.sleep(0.01)
        return set(self.modules_file.read_text().split("\n"))

    def log_lines(self) -> list[dict[str, Any]]:
        """Every line of the log; a line that is no JSON object fails."""
        lines = [json.loads(line) for line in self.server.log.splitlines()]
        assert all(isinstance(line, dict) for line in lines)
        return lines

    def ready_line(self) -> dict[str, Any]:
        (line,) = (line for line in self.log_lines() if line.get("event") == "ready")
        return line


@pytest.fixture(scope="module")
def lean(minilm_artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lean]:
    folder = tmp_path_factory.mktemp("lean")
    options = ("--json-output", "--log-level", "debug")
    with ServerProcess(
        minilm_artifact,
        *options,
        "--request-log",
        str(folder / "requests.jsonl"),
        env={"INFINITY_API_KEY": KEY},
        launcher=(sys.executable, str(LAUNCHER), str(folder / "modules")),
    ) as server:
        _use(server)
        yield Lean(server, folder)


def _use(server: ServerProcess) -> None:
    """Ask what each route is for, and be refused in every way that echoes something."""
    fine: dict[str, object] = {
        "/embed": {"inputs": [TEXT, [101, 102]], "encoding_format": "tensor"},
        "/embed_all": {"inputs": TEXT},
        "/v1/embeddings": {"input": TEXT, "encoding_format": "base64"},
        "/tokenize": {"inputs": TEXT},
        "/decode": {"ids": [101, 102]},
    }
    for path, body in fine.items():
        assert server.post(path, body, AUTHORIZED).status == 200, path
    packed = {**AUTHORIZED, "accept": "application/msgpack", "accept-encoding": "zstd"}
    assert server.post("/embed", {"inputs": [TEXT] * 100}, packed).status == 200
    for path in ("/info", "/v1/models", "/docs", "/api-doc/openapi.json", "/metrics", "/ready"):
        assert server.get(path, AUTHORIZED).status == 200, path
    refused: list[tuple[object, dict[str, str], int]] = [
        ({"inputs": TEXT}, {"authorization": f"Bearer {KEY}x"}, 401),
        ({"inputs": [TEXT, ""]}, AUTHORIZED, 400),
        ({"inputs": TEXT, "prompt_name": TEXT}, AUTHORIZED, 422),
        ({"inputs": TEXT, TEXT: TEXT, "dimensions": TEXT}, AUTHORIZED, 422),
        (f'{{"inputs": "{TEXT}'.encode(), AUTHORIZED, 400),
    ]
    for body, headers, status in refused:
        reply = server.post("/embed", body, headers)
        assert reply.status == status
        assert KEY not in reply.body.decode()


def test_no_module_of_the_compiler_or_of_torch(lean: Lean) -> None:
    modules = lean.modules()
    assert {"infinity_v3.server.server", "infinity_v3.runtime.service", "numpy"} <= modules
    heads = {name.split(".")[0] for name in modules}
    assert [name for name in FORBIDDEN if name in modules | heads] == []


def test_one_process_without_the_binding_of_torch(lean: Lean) -> None:
    # One process: so the modules above are all there are.
    assert descendants(lean.server.pid) == []
    names = {Path(path).name for path in mapped_files(lean.server.pid)}
    assert "libtorch_cpu.so" in names
    assert [name for name in names if name.startswith(("libtorch_python", "_C."))] == []


def test_ready_line_says_what_is_served(lean: Lean, minilm_artifact: Path) -> None:
    line = lean.ready_line()
    (model,) = line["models"]
    targets = {path.name for path in (minilm_artifact / "targets").iterdir()}
    info: Any = lean.server.get("/info", AUTHORIZED).json()
    assert model["model"] == "all-MiniLM-L6-v2"
    assert model["artifact"] == info["artifact"]["id"]
    assert model["artifact"].startswith("sha256:")
    assert model["target"] == info["artifact"]["target"]
    assert model["target"] in targets
    assert any("chosen" in reason for reason in model["why"])
    assert set(model["seconds"]) >= {"resolve", "load", "warmup"}
    assert set(line["seconds"]) >= {"config", "bind", "total"}
    parts = sum(model["seconds"].values()) + line["seconds"]["config"] + line["seconds"]["bind"]
    assert 0 < parts <= line["seconds"]["total"] + 0.01


def test_ready_line_is_also_a_sentence(lean: Lean) -> None:
    line = lean.ready_line()
    (model,) = line["models"]
    for fact in (model["artifact"], model["target"], *model["why"], lean.server.base_url):
        assert fact in line["message"]
    for phase in ("resolve", "load", "warmup", "config", "bind", "total"):
        assert f"{phase}=" in line["message"]


def test_log_lines_are_json(lean: Lean) -> None:
    lines = lean.log_lines()
    assert len(lines) >= 5
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    assert "api-key=***" in " ".join(line["message"] for line in lines)


def test_request_log_has_one_line_per_request(lean: Lean) -> None:
    lines = [json.loads(line) for line in lean.request_log.read_text().splitlines()]
    answered = [(line["path"], line["status"]) for line in lines]
    assert ("/embed", 400) in answered
    assert ("/v1/embeddings", 200) in answered
    assert [line["items"] for line in lines if line["status"] == 200] == [2, 1, 1, 1, 1, 100]


@pytest.mark.parametrize("secret", [KEY, TEXT])
def test_no_secret_in_any_log(lean: Lean, secret: str) -> None:
    assert secret not in lean.server.log
    assert secret not in lean.request_log.read_text()


def test_no_secret_in_arguments_or_errors(minilm_artifact: Path) -> None:
    # Options are logged with their origin: a key from the command line must be hidden there, too.
    with ServerProcess(minilm_artifact, "--api-key", KEY) as server:
        assert server.post("/embed", {"inputs": TEXT}, AUTHORIZED).status == 200
    assert "api-key=*** (command line)" in server.log
    assert KEY not in server.log
    assert TEXT not in server.log
