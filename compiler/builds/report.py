"""What a build prints at its end: a table for people, a document for programs. Does no I/O."""

import shlex
from collections.abc import Iterator, Sequence

from infinity_v3.artifacts.typed_json import to_json
from infinity_v3.compiler.builds.entry import BuildFile, ModelEntry
from infinity_v3.compiler.builds.outcome import Outcome, worst_error
from infinity_v3.compiler.inspection import shown_bytes

NOTHING = "-"
_COLUMNS = ("model", "version", "result", "id", "size", "seconds", "worst parity figure")
_RIGHT = frozenset({"size", "seconds"})
_SHORT_ID = slice(len("sha256:"), len("sha256:") + 12)


def summary_text(outcomes: Sequence[Outcome], registry: str | None) -> str:
    """Return the table, a sentence for every model that has one, and what is left to promote."""
    lines = list(table([_cells(outcome) for outcome in outcomes]))
    lines += [f"{o.title}: {o.message}" for o in outcomes if o.message]
    commands = [shlex.join(words) for words in promotions(outcomes, registry)]
    if commands:
        lines += ["left to promote:", *(f"  {command}" for command in commands)]
    return "\n".join(lines) + "\n"


def summary_json(outcomes: Sequence[Outcome], registry: str | None) -> dict[str, object]:
    """Return the document of `--json`."""
    error = worst_error(outcomes)
    return {
        "exit_code": 0 if error is None else error.exit_code,
        "registry": registry,
        "models": [_model_json(outcome) for outcome in outcomes],
        "promote": [list(words) for words in promotions(outcomes, registry)],
    }


def check_text(file: BuildFile, entries: Sequence[ModelEntry]) -> str:
    """Return what `--check` says: the models as they would be built."""
    rows = [(entry.name, entry.version, entry.request.checkpoint) for entry in entries]
    lines = table(rows, columns=("model", "version", "checkpoint"))
    return "\n".join([*lines, f"{file.path}: no mistakes found, nothing was built"]) + "\n"


def check_json(file: BuildFile, entries: Sequence[ModelEntry]) -> dict[str, object]:
    """Return the document of `--check --json`."""
    return {
        "registry": file.registry,
        "out": str(file.out),
        "models": [
            {
                "name": entry.name,
                "version": entry.version,
                "checkpoint": entry.request.checkpoint,
                "push_to": entry.push_to,
            }
            for entry in entries
        ],
    }


def promotions(outcomes: Sequence[Outcome], registry: str | None) -> Iterator[tuple[str, ...]]:
    """The commands that are left to run for the versions that are meant for a channel."""
    for outcome in outcomes:
        if registry is not None and outcome.push_to is not None and not outcome.is_bad:
            if outcome.artifact_id is None:  # left out
                continue
            yield (
                *("infinity-compile", "registry", "promote", outcome.name),
                *("--version", outcome.version, "--to", outcome.push_to),
                *("--registry", registry),
            )


def table(rows: Sequence[Sequence[str]], columns: Sequence[str] = _COLUMNS) -> Iterator[str]:
    """The lines of a table under its headings; sizes and seconds stand on the right."""
    widths = [max(len(line[i]) for line in (columns, *rows)) for i in range(len(columns))]
    for line in (columns, *rows):
        cells = zip(columns, line, widths, strict=True)
        words = [text.rjust(w) if name in _RIGHT else text.ljust(w) for name, text, w in cells]
        yield "  ".join(words).rstrip()


def _cells(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.name,
        outcome.version,
        outcome.result.value,
        outcome.artifact_id[_SHORT_ID] if outcome.artifact_id else NOTHING,
        NOTHING if outcome.num_bytes is None else shown_bytes(outcome.num_bytes),
        f"{outcome.duration_s:.1f}",
        outcome.worst or NOTHING,
    )


def _model_json(outcome: Outcome) -> dict[str, object]:
    return {
        "name": outcome.name,
        "version": outcome.version,
        "result": outcome.result.value,
        "exit_code": outcome.exit_code,
        "message": outcome.message,
        "id": outcome.artifact_id,
        "build_key": outcome.build_key,
        "bytes": outcome.num_bytes,
        "seconds": round(outcome.duration_s, 3),
        "worst_figure": outcome.worst,
        "path": None if outcome.path is None else str(outcome.path),
        "push_to": outcome.push_to,
        "gates": to_json(outcome.gates),
        "log": list(outcome.log),
    }
