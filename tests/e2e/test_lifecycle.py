"""A server process from start to end: refused starts, overload, drain, memory, cache."""

import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from http_client import JSON_HEADERS, HttpClient
from http_metrics import read_metrics, series, wait_for, wait_until_idle
from http_process import descendants, mapped_files
from server_process import ServerProcess, free_port
from tiny_checkpoints import make_tiny_checkpoint

EMBED = "/embed"
MIB = 1 << 20
# 262,144 tokens: more than a second of work for any CPU, minutes for a slow one.
SLOW_BODY = msgspec.json.encode({"inputs": [[101, *range(2000, 2254), 102]] * 1024})
WORDS = ("river", "window", "seven", "quietly", "paper", "engine", "of", "the", "runs", "blue")


def random_texts(choice: random.Random, *, max_items: int, max_words: int) -> list[str]:
    lengths = (choice.randint(1, max_words) for _ in range(choice.randint(1, max_items)))
    return [" ".join(choice.choices(WORDS, k=length)) for length in lengths]


@contextmanager
def slow_request(server: ServerProcess) -> Iterator[http.client.HTTPConnection]:
    """A request that is being computed; its client leaves at the end of the block."""
    with connected(server) as connection:
        connection.request("POST", EMBED, SLOW_BODY, dict(JSON_HEADERS))
        wait_for(server, "infinity_queue_tokens{", 1)
        yield connection


def connected(server: ServerProcess) -> closing[http.client.HTTPConnection]:
    """A connection of its own, closed at the end of the block."""
    return closing(http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=60))


class TestRefusedStarts:
    def refused(self, *arguments: str | Path, code: int) -> str:
        """Start a server that cannot; gives its one sentence."""
        program = Path(sys.executable).with_name("infinity_v3")
        port = () if "--port" in arguments else ("--port", "0")
        quiet = ("--prometheus-port", "0", "--log-level", "error")
        done = subprocess.run(
            [program, *arguments, *port, *quiet],
            capture_output=True,
            text=True,
            env={name: value for name, value in os.environ.items() if "INFINITY_" not in name},
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: ")
        return line.removeprefix("error: ")

    def test_port_in_use(self, minilm_artifact: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            where = ("--hostname", "127.0.0.1", "--port", port)
            message = self.refused("--model-id", minilm_artifact, *where, code=1)
        assert message.startswith(f"--port {port}: in use on 127.0.0.1")

    def test_an_address_of_another_host(self, minilm_artifact: Path) -> None:
        where = ("--hostname", "192.0.2.1")  # set aside for documentation, RFC 5737
        message = self.refused("--model-id", minilm_artifact, *where, code=1)
        assert message.startswith("--hostname 192.0.2.1: no address of this host")

    def test_two_servers_cannot_share_a_port(self, minilm_artifact: Path) -> None:
        with ServerProcess(minilm_artifact) as server:
            port = str(urlsplit(server.base_url).port)
            where = ("--hostname", "127.0.0.1", "--port", port)
            assert "in use" in self.refused("--model-id", minilm_artifact, *where, code=1)
            assert server.post(EMBED, {"inputs": "a"}).status == 200

    @pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"format":"infinity-artifact"}'])
    def test_manifest_that_is_none(self, tmp_path: Path, text: str) -> None:
        tmp_path.chmod(0o755)
        (tmp_path / "artifact.json").write_text(text)
        message = self.refused("--model-id", tmp_path, "--port", "0", code=3)
        assert "artifact.json" in message

    @pytest.mark.parametrize("damage", ["changed", "cut", "missing", "extra"])
    def test_damaged_artifact(self, minilm_artifact: Path, tmp_path: Path, damage: str) -> None:
        copy = Path(shutil.copytree(minilm_artifact, tmp_path / "artifact"))
        file = copy / "tokenizer" / "tokenizer.json"
        content = file.read_bytes()
        if damage == "changed":
            file.write_bytes(content[:1000] + bytes((content[1000] ^ 1,)) + content[1001:])
        elif damage == "cut":
            file.write_bytes(content[:-1])
        elif damage == "missing":
            file.unlink()
        else:
            file = copy / "tokenizer" / "more.json"
            file.write_bytes(b"{}")
        message = self.refused("--model-id", copy, "--port", "0", code=3)
        assert f"tokenizer/{file.name}" in message
        shutil.rmtree(copy)

    def test_pooling_that_was_not_compiled(self, minilm_artifact: Path) -> None:
        options = ("--pooling", "max", "--port", "0")
        message = self.refused("--model-id", minilm_artifact, *options, code=2)
        assert "--pooling max" in message
        assert "infinity-compile" in message

    @pytest.mark.parametrize(
        ("arguments", "fragments"),
        [
            (("--max-batch-token", "5"), ("--max-batch-token", "--max-batch-tokens")),
            (("--prot", "5"), ("--prot:", "--port")),
            (("--port", "http"), ("--port", "http")),
            (("--api-key=",), ("--api-key",)),
            (("--dtype", "fp32"), ("--dtype", "fp32", "float32")),
            (("--revision", "main"), ("--revision",)),
        ],
    )
    def test_wrong_options(
        self, minilm_artifact: Path, arguments: tuple[str, ...], fragments: tuple[str, ...]
    ) -> None:
        message = self.refused("--model-id", minilm_artifact, *arguments, code=2)
        assert [part for part in fragments if part not in message] == []

    @pytest.mark.parametrize("model", ["./no-such-directory", "/tmp/..", "a:", "not an id"])
    def test_model_that_is_none(self, model: str) -> None:
        assert model in self.refused("--model-id", model, "--port", "0", code=2)

    def test_a_reference_that_no_registry_knows(self, tmp_path: Path) -> None:
        message = self.refused("--model-id", "a:b", "--registry", tmp_path, code=3)
        assert f"--model-id a:b: {tmp_path}: expected a registry" in message

    def test_no_model(self) -> None:
        assert "--model-id" in self.refused("--port", "0", code=2)


class TestOverload:
    def test_request_slots(self, minilm_artifact: Path) -> None:
        with ServerProcess(minilm_artifact, "--max-concurrent-requests", "1") as server:
            with slow_request(server):
                reply = server.post(EMBED, {"inputs": "a"})
                answer: Any = reply.json()
                assert (reply.status, answer["error_type"]) == (429, "Overloaded")
                assert "Model is overloaded" in answer["error"]
                assert "--max-concurrent-requests" in answer["error"]
                assert 1 <= int(reply.headers["retry-after"]) <= 60
                self.assert_probes_answer(server)
            wait_until_idle(server)
            assert server.post(EMBED, {"inputs": "a"}).status == 200
            samples = read_metrics(server)
        assert samples['te_request_failure{err="overloaded"}'] == 1
        assert samples['te_request_failure{err="dropped"}'] == 1
        assert (
            series(
                samples, 'infinity_rejected_total{model="all-MiniLM-L6-v2",reason="requests_limit"}'
            )
            == 1
        )

    def assert_probes_answer(self, server: ServerProcess) -> None:
        for path in ("/health", "/ready", "/ping", "/metrics"):
            assert server.get(path).status == 200

    def test_queue_tokens(self, minilm_artifact: Path) -> None:
        with ServerProcess(minilm_artifact, "--max-queue-tokens", "100") as server:
            whole = server.post(EMBED, {"inputs": "hello " * 198})
            assert whole.status == 422
            assert b"--max-queue-tokens" in whole.body
            before = series(read_metrics(server), "infinity_tokens_total")
            with ThreadPoolExecutor(16) as pool:
                codes = [code for codes in pool.map(self.crowd, [server] * 16) for code in codes]
            assert set(codes) == {200, 429}
            wait_until_idle(server)
            computed = series(read_metrics(server), "infinity_tokens_total") - before
            assert computed == 60 * codes.count(200), "a refused request was computed in part"
            assert server.post(EMBED, {"inputs": "hello"}).status == 200

    def crowd(self, server: ServerProcess) -> list[int]:
        """Ask for 60 tokens in two items, again and again."""
        codes = []
        with HttpClient(server.base_url) as client:
            for _ in range(10):
                reply = client.post(EMBED, {"inputs": ["hello " * 28] * 2})
                codes.append(reply.status)
                if reply.status == 429:
                    assert 1 <= int(reply.headers["retry-after"]) <= 60
                    assert b"--max-queue-tokens" in reply.body
        return codes


class TestDrain:
    def test_every_request_is_answered(self, minilm_artifact: Path) -> None:
        with ServerProcess(minilm_artifact) as server, ThreadPoolExecutor(8) as pool:
            running = [pool.submit(self.ask_until_told, server, seed) for seed in range(8)]
            wait_for(server, "te_request_success", 24)
            begun_s = time.monotonic()
            code = server.stop()
            assert time.monotonic() - begun_s < 30
            answers = [answer for one in running for answer in one.result()]
        assert code == 0
        assert {status for status, _ in answers} <= {200, 503}
        assert all(is_last for status, is_last in answers if status == 503)
        assert len(answers) >= 24

    def ask_until_told(self, server: ServerProcess, seed: int) -> list[tuple[int, bool]]:
        """Ask on one connection until an answer says that it is the last; a cut connection raises.

        Gives (status, whether the connection ends) of each answer.
        """
        choice = random.Random(seed)
        answers: list[tuple[int, bool]] = []
        with HttpClient(server.base_url) as client:
            while not answers or not answers[-1][1]:
                texts = random_texts(choice, max_items=12, max_words=60)
                reply = client.post(EMBED, {"inputs": texts})
                answers.append((reply.status, reply.headers.get("connection") == "close"))
        return answers

    def test_states_while_draining(self, minilm_artifact: Path) -> None:
        body = msgspec.json.encode({"inputs": [[101, *range(2000, 2254), 102]] * 64})
        with ServerProcess(minilm_artifact, "--cpu-threads-per-replica", "1") as server:
            admitted = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=60)
            admitted.request("POST", EMBED, body, dict(JSON_HEADERS))
            wait_for(server, "infinity_queue_tokens{", 1)
            server.process.send_signal(signal.SIGTERM)
            self.wait_until_draining(server)
            assert server.get("/health").status == 200
            for texts in (["a"], ["a" * 1000] * 1000):
                refused = server.post(EMBED, {"inputs": texts})
                answer: Any = refused.json()
                assert (refused.status, answer["error_type"]) == (503, "Unhealthy")
                assert refused.headers["connection"] == "close"
                assert int(refused.headers["retry-after"]) >= 1
            reply = admitted.getresponse()
            assert (reply.status, len(msgspec.json.decode(reply.read()))) == (200, 64)
            admitted.close()
            assert server.process.wait(10) == 0
        assert "drained in" in server.log

    def wait_until_draining(self, server: ServerProcess) -> None:
        deadline = time.monotonic() + 10
        while (reply := server.get("/ready")).status == 200:
            assert time.monotonic() < deadline
        answer: Any = reply.json()
        assert (reply.status, answer["status"], answer["error_type"]) == (
            503,
            "draining",
            "Unhealthy",
        )
        assert set(answer["models"].values()) == {"draining"}

    def test_requests_left_when_the_time_is_over_are_told(self, minilm_artifact: Path) -> None:
        with ServerProcess(minilm_artifact, "--drain-timeout", "0.1") as server:
            with slow_request(server) as client:
                server.process.send_signal(signal.SIGTERM)
                reply = client.getresponse()
                assert reply.status == 503
                assert reply.getheader("connection") == "close"
                assert b"drain time" in reply.read()
            assert server.process.wait(20) == 1

    @pytest.mark.slow
    def test_a_reply_is_read_to_its_end(self, minilm_artifact: Path) -> None:
        body = msgspec.json.encode({"inputs": [[101, *range(2000, 2254), 102]] * 64})
        with (
            ServerProcess(minilm_artifact, "--drain-timeout", "60") as server,
            connected(server) as connection,
        ):
            connection.request("POST", "/embed_all", body, dict(JSON_HEADERS))
            reply = connection.getresponse()
            size = int(reply.getheader("content-length") or 0)
            server.process.send_signal(signal.SIGTERM)
            received = 0
            while piece := reply.read(size // 50):
                received += len(piece)
                time.sleep(0.09)
            assert received == size
            assert server.process.wait(20) == 0

    def test_a_reply_that_nobody_reads_is_cut_when_the_time_is_over(
        self, minilm_artifact: Path
    ) -> None:
        body = msgspec.json.encode({"inputs": [[101, *range(2000, 2254), 102]] * 64})
        with (
            ServerProcess(minilm_artifact, "--drain-timeout", "0.1") as server,
            connected(server) as connection,
        ):
            connection.request("POST", "/embed_all", body, dict(JSON_HEADERS))
            assert connection.getresponse().status == 200
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(20) == 1
            assert "replies unread" in server.log

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_second_signal_ends_at_once(
        self, minilm_artifact: Path, number: signal.Signals, code: int
    ) -> None:
        with ServerProcess(minilm_artifact) as server, slow_request(server):
            server.process.send_signal(signal.SIGTERM)
            self.wait_until_draining(server)
            begun_s = time.monotonic()
            assert server.stop(stop_signal=number) == code
            assert time.monotonic() - begun_s < 15.0, "it waited for the request"

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_idle_server_ends_at_once(self, minilm_artifact: Path, number: signal.Signals) -> None:
        with ServerProcess(minilm_artifact) as server, HttpClient(server.base_url) as idle:
            assert idle.post(EMBED, {"inputs": "a"}).status == 200
            begun_s = time.monotonic()
            assert server.stop(stop_signal=number) == 0
            assert time.monotonic() - begun_s < 15.0, "it waited out the drain time"


def test_a_process_without_folder_and_streams(minilm_artifact: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    # What a careless supervisor leaves: a removed working directory, closed standard streams.
    script = 'cd "$1"; rmdir "$1"; shift; exec "$@" <&- 2>&-'
    launcher = ("/bin/sh", "-c", script, "sh", str(gone))
    with ServerProcess(minilm_artifact, port=free_port(), launcher=launcher) as server:
        assert server.post(EMBED, {"inputs": "a"}).status == 200
        streams = [Path(f"/proc/{server.pid}/fd/{number}").readlink() for number in (0, 2)]
        assert streams == [Path(os.devnull)] * 2
        assert server.stop() == 0


@pytest.mark.slow
def test_memory_is_flat(minilm_artifact: Path) -> None:
    with ServerProcess(minilm_artifact) as server, ThreadPoolExecutor(4) as pool:
        resident = []
        for thousand in range(4):
            seeds = range(4 * thousand, 4 * thousand + 4)
            list(pool.map(partial(ask_250_times, server), seeds))
            resident.append(server.rss_bytes / MIB)
    assert resident[0] < 450, f"MiB after 1,000, 2,000 and 3,000 requests: {resident}"
    # The first two thousand meet most batch sizes of four clients for the first time.
    assert resident[3] - resident[1] < 10, f"MiB after every 1,000 requests: {resident}"


def ask_250_times(server: ServerProcess, seed: int) -> None:
    choice = random.Random(seed)
    with HttpClient(server.base_url) as client:
        for _ in range(250):
            texts = random_texts(choice, max_items=2, max_words=40)
            assert client.post(EMBED, {"inputs": texts}).status == 200


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_checkpoint("bert", tmp_path_factory.mktemp("checkpoint") / "tiny-bert")


@pytest.mark.slow
class TestCheckpoints:
    """A checkpoint directory as `--model-id`."""

    def serve(self, checkpoint: Path, folder: Path) -> ServerProcess:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        return ServerProcess(
            checkpoint,
            *("--artifact-cache", str(folder / "cache")),
            env={"XDG_CACHE_HOME": str(folder / "xdg")},
            port=port,
            ready_timeout_s=900,
        )

    def test_compiled_once(self, checkpoint: Path, tmp_path: Path) -> None:
        first = self.serve(checkpoint, tmp_path)
        first.start()
        try:
            self.assert_loading(first)
            first.wait_until_ready()
            vector = first.post(EMBED, {"inputs": "hello"}).json()
            assert not any("libtorch_python" in path for path in mapped_files(first.pid))
            assert first.stop() == 0
        finally:
            first.kill()
        assert "infinity-compile:" in first.log

        with self.serve(checkpoint, tmp_path) as second:
            assert second.post(EMBED, {"inputs": "hello"}).json() == vector
        assert "infinity-compile:" not in second.log
        assert "compiled earlier" in second.log
        assert len(list((tmp_path / "cache" / "compiled").glob("*/artifact.json"))) == 1
        assert (tmp_path / "cache").stat().st_mode & 0o077 == 0

    def assert_loading(self, server: ServerProcess) -> None:
        """From the bind on every route answers; none says that the server is ready."""
        deadline = time.monotonic() + 60
        while "infinity-compile:" not in server.log:
            assert time.monotonic() < deadline, server.log
            time.sleep(0.01)
        ready: Any = server.get("/ready").json()
        assert (ready["status"], ready["error_type"]) == ("loading", "Unhealthy")
        for path in ("/", "/health", "/ping"):
            reply = server.get(path)
            assert (reply.status, reply.json()) == (
                503,
                {"error": "unhealthy", "error_type": "Unhealthy"},
            )
        refused = server.post(EMBED, {"inputs": "hello"})
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        assert read_metrics(server)["infinity_ready"] == 0
        assert server.get("/docs").status == 200

    def test_signal_ends_the_compile(self, checkpoint: Path, tmp_path: Path) -> None:
        server = self.serve(checkpoint, tmp_path)
        server.start()
        try:
            self.assert_loading(server)
            children = descendants(server.pid)
            assert children
            assert server.stop(timeout_s=10) == 0
            deadline = time.monotonic() + 30
            while any(Path(f"/proc/{child}").exists() for child in children):
                assert time.monotonic() < deadline, "the compile goes on without its server"
                time.sleep(0.05)
        finally:
            server.kill()
        assert not list((tmp_path / "cache" / "compiled").glob("*/artifact.json"))
        assert "error:" not in server.log

    def test_failed_compile_is_one_sentence(self, checkpoint: Path, tmp_path: Path) -> None:
        broken = Path(shutil.copytree(checkpoint, tmp_path / "broken"))
        (broken / "tokenizer.json").unlink()
        server = self.serve(broken, tmp_path)
        server.start()
        try:
            assert server.process.wait(120) == 2
        finally:
            server.kill()
        last = server.log.splitlines()[-1]
        assert last.startswith(f"error: --model-id {broken}: compiling failed: ")
        assert "tokenizer.json" in last
        assert "Traceback" not in server.log
