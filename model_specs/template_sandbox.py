"""Runs a chat template of a checkpoint, which is a program by a stranger, in a process of its own.

The process has jinja2's sandbox and hard limits of time and memory. Knows nothing of what a
template is for.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

WALL_SECONDS = 20
_CPU_SECONDS = 5
_MAX_MEMORY_BYTES = 1 << 30
_MAX_OUTPUT_CHARACTERS = 1_000_000
_REASON_CHARACTERS = 200
_TOO_MUCH = "it takes too much time or memory"


class TemplateFailedError(Exception):
    """A template that cannot be run; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A template and the variables that it is given: values that JSON knows."""

    source: str
    variables: Mapping[str, object]


def render(rendering: Rendering) -> str:
    """Run a template.

    Raises:
        TemplateFailedError: it is wrong, raises, or takes too much time or memory.
    """
    question = {"source": rendering.source, "variables": dict(rendering.variables)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(question).encode("ascii"),
            capture_output=True,
            check=False,
            timeout=WALL_SECONDS,
            cwd="/",  # where Python looks for modules first
        )
    except subprocess.TimeoutExpired:
        raise TemplateFailedError(_TOO_MUCH) from None
    if done.returncode < 0:
        raise TemplateFailedError(_TOO_MUCH)
    if done.returncode > 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise TemplateFailedError((lines or ["its process failed"])[-1][:_REASON_CHARACTERS])
    answer = json.loads(done.stdout)
    if answer["reason"] is not None:
        raise TemplateFailedError(answer["reason"])
    text: str = answer["text"]
    return text


def _answer(source: str, variables: Mapping[str, object]) -> dict[str, str | None]:
    # Loaded here: only the child needs it.
    from jinja2 import Environment, TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The block that marks what an assistant says; it stays as it is."""

        tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: object) -> None:
        raise TemplateError(str(message))

    def to_json(value: object, indent: int | None = None, **_: object) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment: Environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    try:
        text = environment.from_string(source).render(**variables)
    except MemoryError:
        return {"text": None, "reason": _TOO_MUCH}
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TemplateError,
        TypeError,
        ValueError,
    ) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return {"text": None, "reason": reason[:_REASON_CHARACTERS]}
    if len(text) > _MAX_OUTPUT_CHARACTERS:
        return {"text": None, "reason": f"it gives {len(text)} characters"}
    return {"text": text, "reason": None}


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = json.loads(sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(_answer(question["source"], question["variables"])))


if __name__ == "__main__":
    _main()
