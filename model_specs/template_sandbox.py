"""Runs a chat template of a checkpoint, which is a program by a stranger, in a process of its own.

The process has hard limits of time and memory, and runs the template by the code that will serve
it. Knows nothing of what a template is for.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

WALL_SECONDS = 20
_CHILD = "infinity_v3.runtime.template_child"
_REASON_CHARACTERS = 200
_TOO_MUCH = "it takes too much time or memory"


class TemplateFailedError(Exception):
    """A template that cannot be run; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A template and the variables that it is given: values that JSON knows.

    `has_clock`: it may ask for the time; what it then makes holds for this moment only.
    """

    source: str
    variables: Mapping[str, object]
    has_clock: bool = False


def render(rendering: Rendering) -> str:
    """Run a template.

    Raises:
        TemplateFailedError: it is wrong, raises, or takes too much time or memory.
    """
    question = {
        "source": rendering.source,
        "variables": dict(rendering.variables),
        "has_clock": rendering.has_clock,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", _CHILD],
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
