"""A child process that runs one target and answers questions, one line of JSON each.

Knows nothing of what is asked.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TypeVar

from infinity_v3.artifacts.errors import RunFailedError

ChildT = TypeVar("ChildT", bound="AskedChild")


class AskedChild:
    """A process as a context manager; it ends with the block.

    Args:
        module: run as a program; reads one line per question and writes one per answer.
        arguments: given to it.
        target_name: what it runs, for messages.
        environ: beside the variables of this process.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        target_name: str,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._target_name = target_name
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | dict(environ or {}),
        )

    def __enter__(self: ChildT) -> ChildT:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def ask(self, question: Sequence[object]) -> object:
        """Ask one question and wait for its answer.

        Raises:
            RunFailedError: the engine could not be loaded, crashed or failed.
        """
        process = self._process
        assert process.stdin is not None, "the child's input is a pipe; this is a bug"
        assert process.stdout is not None, "the child's output is a pipe; this is a bug"
        answer = ""
        try:
            process.stdin.write(f"{json.dumps(question)}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            pass  # it has ended: below it is asked why
        if not answer:
            _, said = process.communicate()
            last = said.strip().splitlines()[-1:] or [f"it ended with {process.returncode}"]
            raise RunFailedError(f"target {self._target_name} could not be measured: {last[0]}")
        return json.loads(answer)
