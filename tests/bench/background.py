"""Processes that run beside what is measured. Knows nothing of what they do."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def background(commands: Sequence[Sequence[str]]) -> Iterator[None]:
    """Run each command inside the block, and kill it then."""
    processes = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
