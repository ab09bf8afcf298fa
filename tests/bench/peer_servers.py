"""Servers that are compared: how each is started and where it answers.

Knows nothing of what is asked.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from server_process import ServerProcess, free_port

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 30.0
MODEL_NAME = "model"
"""What every server calls its model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerServer:
    """A published server.

    Attributes:
        program: its command, in an environment of its own.
        arguments: that serve a checkpoint, which is appended, on the CPU.
        environment: variables beside the caller's.
        embeddings_path, rerank_path: where it answers.
    """

    name: str
    program: Path
    arguments: tuple[str, ...]
    model_option: tuple[str, ...]
    environment: Mapping[str, str]
    embeddings_path: str
    rerank_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A server that is up."""

    name: str
    base_url: str
    embeddings_path: str
    rerank_path: str


def infinity_emb(program: Path) -> PeerServer:
    """The predecessor, on torch."""
    return PeerServer(
        name="infinity_emb",
        program=program,
        arguments=("v2", "--engine", "torch", "--device", "cpu"),
        model_option=("--model-id",),
        environment={"INFINITY_ANONYMOUS_USAGE_STATS": "0"},
        embeddings_path="/embeddings",
        rerank_path="/rerank",
    )


def vllm_cpu(program: Path) -> PeerServer:
    """The pooling runner of vLLM, built for CPUs, in bfloat16."""
    return PeerServer(
        name="vLLM-CPU",
        program=program,
        arguments=("serve", "--runner", "pooling", "--dtype", "bfloat16"),
        model_option=("--model",),
        environment={
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
        },
        embeddings_path="/v1/embeddings",
        rerank_path="/v1/rerank",
    )


@contextmanager
def our_server(artifact: Path, threads: int) -> Iterator[Contestant]:
    """This product."""
    options = ("--cpu-threads-per-replica", str(threads))
    with ServerProcess(artifact, *options) as server:
        yield Contestant(
            name="infinity_v3",
            base_url=server.base_url,
            embeddings_path="/v1/embeddings",
            rerank_path="/v1/rerank",
        )


@contextmanager
def peer_server(peer: PeerServer, checkpoint: Path, threads: int) -> Iterator[Contestant]:
    """A peer on a free port of the loopback interface.

    Raises:
        SystemExit: it did not come up; its log is printed.
    """
    port = free_port()
    command = [str(peer.program), *peer.arguments, *peer.model_option, str(checkpoint)]
    command += ["--served-model-name", MODEL_NAME, "--host", "127.0.0.1", "--port", str(port)]
    offline = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **offline, **peer.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        base_url = f"http://127.0.0.1:{port}"
        try:
            if not _comes_up(process, base_url):
                log.seek(0)
                raise SystemExit(f"{peer.name} did not come up:\n{log.read()[-4000:]}")
            yield Contestant(
                name=peer.name,
                base_url=base_url,
                embeddings_path=peer.embeddings_path,
                rerank_path=peer.rerank_path,
            )
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _comes_up(process: "subprocess.Popen[bytes]", base_url: str) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(base_url + "/health", timeout=5):
                return True
        except OSError:  # nobody listens yet
            time.sleep(0.2)
    return False
