"""The command lines of a build's child processes. Runs none of them."""

import sys
from collections.abc import Mapping
from pathlib import Path

from infinity_v3.compiler.builds.entry import LABEL, ModelEntry
from infinity_v3.compiler.builds.pool import Command
from infinity_v3.compiler.builds.sources import SourceState
from infinity_v3.compiler.options import ENV_PREFIX, RawValue

PROGRAM = (sys.executable, "-m", "infinity_v3.compiler.cli")


def compile_command(
    entry: ModelEntry, source: SourceState, *, key: str, out: Path, threads: int
) -> Command:
    """Compile a model into `out`.

    Args:
        entry: what the build file says.
        source: the checkpoint, of a hub id the commit that the key is made of.
        key: the build key, kept as a label.
        out: where the artifact appears.
        threads: of the compile, unless the entry has its own number.
    """
    decided: dict[str, RawValue] = {
        "out": str(out),
        "name": entry.name,
        "label": {**entry.request.labels, LABEL: key},
        "threads": entry.request.threads or threads,
    }
    if source.revision is not None:
        decided["revision"] = source.revision
    words = [
        word for name, raw in {**entry.options, **decided}.items() for word in flag_words(name, raw)
    ]
    return Command(
        step="compile", arguments=(*PROGRAM, "model", *words, "--", entry.request.checkpoint)
    )


def pull_command(name: str, version: str, *, registry: str, out: Path) -> Command:
    """Fetch a version that was built from the same inputs before."""
    reference = f"{name}=={version}"
    words = ("registry", "pull", f"--registry={registry}", f"--out={out}", "--", reference)
    return Command(step="pull", arguments=(*PROGRAM, *words))


def push_command(
    version: str, *, registry: str, artifact: Path, sign_key: Path | None = None
) -> Command:
    """Put an artifact into the registry, signed where there is a key."""
    words = ["registry", "push", f"--registry={registry}", f"--version={version}"]
    if sign_key is not None:
        words.append(f"--sign-key={sign_key.absolute()}")
    return Command(step="push", arguments=(*PROGRAM, *words, "--", str(artifact)))


def sign_command(name: str, version: str, *, registry: str, sign_key: Path) -> Command:
    """Sign a version that the registry has."""
    words = ("registry", "sign", f"--registry={registry}", f"--key={sign_key.absolute()}")
    return Command(step="sign", arguments=(*PROGRAM, *words, "--", f"{name}=={version}"))


def flag_words(key: str, raw: RawValue) -> tuple[str, ...]:
    """Write an option as `model` reads it: the opposite of `options.parse_texts`."""
    if isinstance(raw, dict):
        return tuple(f"--{key}={name}={text}" for name, text in raw.items())
    if isinstance(raw, tuple):
        return tuple(f"--{key}={text}" for text in raw)
    if isinstance(raw, bool):
        return (f"--{key}",) if raw else ()
    return (f"--{key}={raw}",)


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out the variables of `model`, which would change what the build file says."""
    return {name: value for name, value in environ.items() if not name.startswith(ENV_PREFIX)}
