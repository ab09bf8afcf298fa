"""A process that runs one template under hard limits of time and memory, and says what came of it.

Reads a JSON object with `source`, `variables` and `has_clock` from standard input and writes one
with `text`, or with the `reason` why there is none. Imported by nobody: it is started as a program.
"""

import json
import resource
import sys
from collections.abc import Mapping

from infinity_v3.runtime.chat_environment import TEMPLATE_ERRORS, compile_template

_CPU_SECONDS = 5
_MAX_MEMORY_BYTES = 1 << 30
_MAX_OUTPUT_CHARACTERS = 1_000_000
_REASON_CHARACTERS = 200


def _answer(
    source: str, variables: Mapping[str, object], *, has_clock: bool
) -> dict[str, str | None]:
    try:
        text = compile_template(source, has_clock=has_clock).render(**variables)
    except MemoryError:
        return _failed("it takes too much time or memory")
    except TEMPLATE_ERRORS as error:
        return _failed(f"{type(error).__name__}: {error}")
    if len(text) > _MAX_OUTPUT_CHARACTERS:
        return _failed(f"it gives {len(text)} characters")
    return {"text": text, "reason": None}


def _failed(reason: str) -> dict[str, str | None]:
    return {"text": None, "reason": " ".join(reason.split())[:_REASON_CHARACTERS]}


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = json.loads(sys.stdin.buffer.read())
    sys.stdout.write(json.dumps(_answer(**question)))


if __name__ == "__main__":
    _main()
