"""The demo: compile a real encoder, serve it, ask for embeddings over HTTP, stop the server.

Knows only the two programs and their HTTP interface; imports nothing of the product.
"""

import hashlib
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from compiled import minilm_checkpoint  # noqa: E402  (the path above makes it importable)
from server_process import ServerProcess  # noqa: E402

RELATED = (
    ("A cat is sleeping on the sofa.", "A kitten naps on the couch."),
    ("The central bank raised interest rates.", "Borrowing money became more expensive."),
    ("How do I sort a list in Python?", "Ordering the elements of a Python array."),
)
NUM_TIMED_REQUESTS = 50


def main() -> int:
    artifact, compiled = compile_minilm()
    started = time.perf_counter()
    with ServerProcess(artifact) as server:
        startup_s = time.perf_counter() - started
        sentences = [sentence for pair in RELATED for sentence in pair]
        vectors = embed(server, sentences)
        request_ms = [timed_request_ms(server, sentences[0]) for _ in range(NUM_TIMED_REQUESTS)]
        exit_code = server.stop()
    is_separated = print_similarities(sentences, vectors)
    print_timings(compiled, startup_s, request_ms)
    print(f"\nStopped by SIGTERM, exit code {exit_code}.")
    if exit_code != 0:
        print(f"The server should have ended with 0. Its log:\n{server.log}", file=sys.stderr)
    return 0 if is_separated and exit_code == 0 else 1


def compile_minilm() -> tuple[Path, str]:
    """Give the artifact and, in words, how long its compilation took."""
    folder = ROOT / ".cache" / "demo" / source_digest()
    out, note = folder / "all-MiniLM-L6-v2", folder / "compile-time.txt"
    if note.exists():
        return out, f"{note.read_text()} (by an earlier run; make clean forgets it)"
    folder.mkdir(parents=True, exist_ok=True)
    command = ["infinity-compile", "model", str(minilm_checkpoint()), "--out", str(out)]
    command += ["--name", "all-MiniLM-L6-v2"]
    print("$", " ".join(command), flush=True)
    started = time.perf_counter()
    program = Path(sys.executable).with_name(command[0])
    if subprocess.run([program, *command[1:]], check=False).returncode != 0:
        raise SystemExit("The compilation failed; its message is above.")
    note.write_text(f"{time.perf_counter() - started:.1f} s")
    return out, note.read_text()


def source_digest() -> str:
    """Changes when the code that compiles changes, so that the demo never shows an old artifact."""
    digest = hashlib.sha256(sys.version.encode())
    for folder in ("artifacts", "compiler", "model_specs", "runtime"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".cpp", ".h", ".toml"}:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def embed(server: ServerProcess, sentences: Sequence[str]) -> list[list[float]]:
    reply = server.post("/v1/embeddings", {"input": list(sentences)})
    if reply.status != 200:
        raise SystemExit(f"/v1/embeddings answered {reply.status}: {reply.body.decode()}")
    body: Any = reply.json()
    return [row["embedding"] for row in body["data"]]


def timed_request_ms(server: ServerProcess, sentence: str) -> float:
    started = time.perf_counter()
    embed(server, [sentence])
    return (time.perf_counter() - started) * 1000


def print_similarities(sentences: Sequence[str], vectors: Sequence[Sequence[float]]) -> bool:
    """Print the table; True when every related pair is more similar than every unrelated one."""
    indices = range(len(sentences))
    print("\nCosine similarity".ljust(46), *(f"{column + 1:>6}" for column in indices))
    for row in indices:
        cells = (f"{cosine(vectors[row], vectors[column]):6.2f}" for column in indices)
        print(f"{row + 1}  {sentences[row]:<41}", *cells)
    related: list[float] = []
    unrelated: list[float] = []
    for row in indices:
        for column in range(row):
            group = related if row // 2 == column // 2 else unrelated
            group.append(cosine(vectors[row], vectors[column]))
    print(f"\nRelated pairs: {min(related):.2f} or more. Unrelated: {max(unrelated):.2f} or less.")
    return min(related) > max(unrelated)


def print_timings(compiled: str, startup_s: float, request_ms: Sequence[float]) -> None:
    print(f"\nCompile           {compiled}")
    print(f"Start to ready    {startup_s:.2f} s")
    print(
        f"One request       {statistics.median(request_ms):.1f} ms"
        f"   (median of {len(request_ms)}, one sentence, a new connection each)"
    )


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(left, right, strict=True))
    return dot / (math.hypot(*left) * math.hypot(*right))


if __name__ == "__main__":
    sys.exit(main())
