"""Runs `infinity-compile` as a process of its own and forwards its log. Knows nothing of caches."""

import importlib.util
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from infinity_v3.artifacts.errors import InfinityError, RefusedError, RunFailedError, UsageError
from infinity_v3.server.cache_key import CompileOrder

_log = logging.getLogger("infinity_v3")
_EXTRA_MODULES = ("transformers", "safetensors", "huggingface_hub")
_ERRORS: Mapping[int, type[InfinityError]] = {2: UsageError, 3: RefusedError}
_CLEAN_UP_S = 10.0
_KEPT_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_.*|TZ|TMPDIR|XDG_CACHE_HOME|LD_LIBRARY_PATH|VIRTUAL_ENV|CC|CXX|"
    r"HF_(TOKEN|HOME|HUB_.*|ENDPOINT)|(HTTP|HTTPS|NO|ALL)_PROXY|(http|https|no|all)_proxy|SSL_CERT_(FILE|DIR)|"
    r"REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)


class CompileChild:
    """At most one compile at a time; `stop` may come from any thread."""

    def __init__(self, hub_cache: Path | None) -> None:
        self._hub_cache = hub_cache
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._is_idle = threading.Event()

    def run(self, order: CompileOrder, out: Path) -> None:
        """Compile into `out` and wait for the end.

        Raises:
            InfinityError: with the child's last sentence and its exit code.
        """
        _require_extra(order, out)
        command = [sys.executable, "-m", "infinity_v3.compiler.cli", *_arguments(order, out)]
        _log.info("compiling once: %s", _pasteable(order, out))
        with self._start(command) as process:
            try:
                assert process.stdout is not None, "the child's output is a pipe; this is a bug"
                last_error = _forward(process.stdout)
                code = process.wait()
            finally:
                # Compilers that it started may outlive it; it leads their process group.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                self._is_idle.set()
        if code != 0:
            raise _failure(code, last_error, order)

    def stop(self) -> None:
        """End the compile that is under way with all it has started, and start no other.

        Blocks until it has cleaned up, for some seconds at most.
        """
        with self._lock:
            self._is_stopped = True
            process = self._process
        if process is None or self._is_idle.is_set():
            return
        process.terminate()
        if not self._is_idle.wait(_CLEAN_UP_S):
            _log.warning("infinity-compile is killed: it did not stop in %g s", _CLEAN_UP_S)
            process.kill()
            self._is_idle.wait()

    def _start(self, command: list[str]) -> "subprocess.Popen[str]":
        with self._lock:
            if self._is_stopped:
                raise RunFailedError("the server is going down, nothing is compiled")
            self._is_idle.clear()
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=scrubbed_environment(os.environ, self._hub_cache),
                    text=True,
                    errors="replace",
                    # Out of reach of the terminal's Ctrl-C, which is ours to pass on.
                    start_new_session=True,
                )
            except OSError as error:
                raise RunFailedError(f"infinity-compile cannot be started: {error}") from None
            return self._process


def scrubbed_environment(environ: Mapping[str, str], hub_cache: Path | None) -> dict[str, str]:
    """What the compiler may see: places, locale, proxies and hub access; no key of the server."""
    kept = {name: value for name, value in environ.items() if _KEPT_VARIABLES.fullmatch(name)}
    if hub_cache is not None:
        kept["HF_HUB_CACHE"] = str(hub_cache)
    return kept


def _forward(lines: Iterable[str]) -> str:
    """Log every line; return the last error sentence."""
    last_error = ""
    for line in lines:
        text = line.strip()
        if text.startswith("error: "):
            last_error = text.removeprefix("error: ")
        elif text:
            _log.info("infinity-compile: %s", text)
    return last_error


def _failure(code: int, sentence: str, order: CompileOrder) -> InfinityError:
    kind = _ERRORS.get(code, RunFailedError)
    reason = sentence or f"infinity-compile ended with exit code {code}"
    return kind(f"--model-id {order.source.model_id}: compiling failed: {reason}")


def _arguments(order: CompileOrder, out: Path) -> list[str]:
    arguments = ["model", _location(order), "--out", str(out)]
    for flag, value in (
        ("--revision", order.source.revision),
        ("--target", order.target),
        ("--pooling", order.pooling),
    ):
        if value is not None:
            arguments += [flag, value]
    return arguments


def _location(order: CompileOrder) -> str:
    source = order.source
    return source.model_id if source.path is None else str(source.path.resolve())


def _pasteable(order: CompileOrder, out: Path) -> str:
    return shlex.join(["infinity-compile", *_arguments(order, out)])


def _require_extra(order: CompileOrder, out: Path) -> None:
    missing = [name for name in _EXTRA_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"--model-id {order.source.model_id} is a {order.source.kind.value} and must be "
            f"compiled, but {', '.join(missing)} is not installed; run: pip install "
            f"'infinity-v3[compile]' && {_pasteable(order, out)}"
        )
