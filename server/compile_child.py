"""Has `infinity-compile model` compile a checkpoint in a process of its own.

Knows nothing of caches.
"""

import importlib.util
import logging
import os
import shlex
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.server.cache_key import CompileOrder
from infinity_v3.server.tool import Tool, scrubbed_environment

_log = logging.getLogger("infinity_v3")
_EXTRA_MODULES = ("transformers", "safetensors", "huggingface_hub")


class CompileChild:
    """Compiles checkpoints; blocking."""

    def __init__(self, hub_cache: Path | None, tool: Tool) -> None:
        self._hub_cache = hub_cache
        self._tool = tool

    def run(self, order: CompileOrder, out: Path) -> None:
        """Compile into `out` and wait for the end.

        Raises:
            InfinityError: with the child's last sentence and its exit code.
        """
        _require_extra(order, out)
        environ = scrubbed_environment(os.environ)
        if self._hub_cache is not None:
            environ["HF_HUB_CACHE"] = str(self._hub_cache)
        _log.info("compiling once: %s", _pasteable(order, out))
        end = self._tool.run(_arguments(order, out), environ)
        if end.code != 0:
            raise end.failure(f"--model-id {order.source.model_id}: compiling failed")


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
