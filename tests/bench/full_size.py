"""Compiles, verifies and serves full-size models with random weights; measures what it takes.

Prints for each: seconds of the compile by stage, size of the artifact, peak memory of the compile
and of the server, start-up, and tokens per second over HTTP. The weights are random, so nothing is
downloaded; the tokenizer is a small one, which costs the same per token.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from machine import describe_machine
from server_process import ServerProcess

SAMPLE_S = 0.1
GIB = 1 << 30
TOKENS_PER_TEXT = 128
TEXTS_PER_REQUEST = 32
REQUESTS = 6
MODELS: Mapping[str, Mapping[str, object]] = {
    "bge-base": {
        "model_type": "bert",
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
    },
    "modernbert-base": {
        "model_type": "modernbert",
        "vocab_size": 50368,
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "max_position_embeddings": 8192,
    },
    "qwen3-embedding-0.6b": {
        "model_type": "qwen3",
        "vocab_size": 151669,
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
}
"""Sizes of the published configurations."""
POOLINGS = {"bge-base": "cls", "modernbert-base": "cls", "qwen3-embedding-0.6b": "last-token"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a command took; memory is that of the whole process tree."""

    seconds: float
    peak_gib: float


def main() -> int:
    """Run the models named, or all."""
    options = _parse()
    for name in options.model or MODELS:
        with tempfile.TemporaryDirectory(prefix="infinity-full-size-") as folder:
            figures = measure(name, Path(folder), options.target)
        print(json.dumps({"model": name, **figures, "machine": describe_machine()}), flush=True)
    return 0


def measure(name: str, folder: Path, targets: list[str]) -> dict[str, object]:
    """Make, compile, which verifies, and serve."""
    checkpoint, artifact = folder / "checkpoint", folder / "artifact"
    subprocess.run([sys.executable, __file__, "--make", name, str(checkpoint)], check=True)
    chosen = [word for target in targets for word in ("--target", target)]
    compiled = watch(_program("infinity-compile", "model", checkpoint, "--out", artifact, *chosen))
    build = json.loads((artifact / "build.json").read_text())
    size = sum(file.stat().st_size for file in artifact.rglob("*") if file.is_file())
    return {
        "compile_s": round(compiled.seconds, 1),
        "compile_peak_gib": round(compiled.peak_gib, 2),
        "stages": build["times"],
        "artifact_mb": round(size / 1e6),
        "parity": build["parity"],
        **serve(artifact),
    }


def serve(artifact: Path) -> dict[str, object]:
    """Throughput of full batches over HTTP, and the server's memory under them."""
    started = time.perf_counter()
    with ServerProcess(artifact, ready_timeout_s=300.0) as server:
        ready_s = time.perf_counter() - started
        ids = [
            [(7 * i + j) % 200 + 10 for j in range(TOKENS_PER_TEXT)]
            for i in range(TEXTS_PER_REQUEST)
        ]
        seconds = [_ask(server, ids) for _ in range(REQUESTS)]
        peak = _status(server.pid, "VmHWM")
    tokens = TOKENS_PER_TEXT * TEXTS_PER_REQUEST
    return {
        "ready_s": round(ready_s, 2),
        "server_peak_gib": round(peak / GIB, 2),
        "tokens_per_s": round(tokens / sorted(seconds)[len(seconds) // 2]),
    }


def _ask(server: ServerProcess, ids: list[list[int]]) -> float:
    started = time.perf_counter()
    reply = server.post("/embed", {"inputs": ids, "encoding_format": "base64"})
    if reply.status != 200:
        raise SystemExit(f"the server answered {reply.status}: {reply.body[:300]!r}")
    return time.perf_counter() - started


def watch(command: list[str]) -> Watched:
    """Run a command and follow the memory of its process tree.

    Raises:
        SystemExit: it failed; its output stands above.
    """
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=sys.stderr)
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_rss(process.pid))
        time.sleep(SAMPLE_S)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:3])} ended with {process.returncode}")
    return Watched(seconds=time.perf_counter() - started, peak_gib=peak / GIB)


def tree_rss(root: int) -> int:
    """Resident bytes of a process and all below it, shared pages counted once per process."""
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += _status(pid, "VmRSS")
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            waiting += [int(child) for child in _read(task).split()]
    return total


def _status(pid: int, key: str) -> int:
    for line in _read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process ended meanwhile
        return ""


def _program(name: str, *arguments: object) -> list[str]:
    return [str(Path(sys.executable).with_name(name)), *map(str, arguments)]


def make(name: str, path: Path) -> None:
    """Write the checkpoint: random weights in bfloat16, as large models are published."""
    import torch
    from transformers import AutoConfig, AutoModel

    from tiny_modules import LEGACY_TYPES, TinyModules
    from tiny_tokenizers import build_tokenizer, write_tokenizer

    values = dict(MODELS[name])
    tokenizer = build_tokenizer("bert")
    kind = str(values.pop("model_type"))
    config = AutoConfig.for_model(kind, **{**values, **tokenizer.config_ids})
    torch.manual_seed(0)
    with torch.device("cpu"):
        model = AutoModel.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
    path.mkdir(parents=True)
    model.save_pretrained(path)
    limit = int(str(values["max_position_embeddings"]))
    write_tokenizer(tokenizer, path, model_max_length=limit)
    TinyModules(path=path, types=LEGACY_TYPES).write(
        (POOLINGS[name],),
        (),
        True,
        width=int(str(values["hidden_size"])),
        seed=0,
        new_names=False,
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", action="append", choices=list(MODELS))
    parser.add_argument("--target", action="append", default=[], help="default: all of this host")
    parser.add_argument("--make", nargs=2, metavar=("MODEL", "DIR"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make(options.make[0], Path(options.make[1]))
        raise SystemExit(0)
    return options


if __name__ == "__main__":
    sys.exit(main())
