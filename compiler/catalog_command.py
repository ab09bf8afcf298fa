"""`infinity-compile catalog`: public checkpoints, and how to compile, serve and ask one of them.

Knows nothing of what stands in the catalog's file.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence

import click

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.model_specs.catalog import CatalogEntry, find_entries, read_catalog

SERVER = "http://127.0.0.1:3000"
_SHOWN_CHARACTERS = 100
_COLUMNS = ("id", "family", "task", "max length", "pooling")


@click.command()
@click.argument("query", nargs=-1)
@click.option(
    "--json",
    "is_json",
    is_flag=True,
    help="Print one JSON document on stdout, for programs, and no progress.",
)
def catalog(query: tuple[str, ...], is_json: bool) -> None:
    """List public checkpoints, or show how to compile, serve and ask one of them.

    QUERY is an id, which shows that checkpoint's settings, or words that are each part of the id,
    the family or the task, such as "qwen3 reranker".
    """
    run_catalog(" ".join(query), is_json=is_json)


def run_catalog(query: str, *, is_json: bool) -> None:
    """Print the checkpoints that a query finds.

    Args:
        query: see `catalog`; empty = all of them.
        is_json: whether to print one line of JSON instead of text.

    Raises:
        UsageError: nothing is found; the sentence names the nearest checkpoint.
    """
    known = read_catalog()
    found = find_entries(known, query)
    if not found:
        raise UsageError(
            f"{query[:_SHOWN_CHARACTERS]!r} is no id and no words of a checkpoint in the catalog"
            f"{_hint(query, known)}; see infinity-compile catalog"
        )
    if is_json:
        document = {"models": [_entry_to_json(entry) for entry in found]}
        text = json.dumps(document, ensure_ascii=False) + "\n"
    else:
        text = _entry_to_text(found[0]) if _is_id(query, found) else _table(found)
    sys.stdout.write(text)


def _is_id(query: str, found: Sequence[CatalogEntry]) -> bool:
    return len(found) == 1 and found[0].id.lower() == query.strip().lower()


def _hint(query: str, known: Sequence[CatalogEntry]) -> str:
    word = query.strip().lower()
    hint = nearest(word, {name for entry in known for name in (entry.family, entry.task.value)})
    if hint:
        return hint
    import difflib  # on the way to an error only

    ids = {name.lower(): entry.id for entry in known for name in (entry.name, entry.id)}
    close = difflib.get_close_matches(word, list(ids), n=3, cutoff=0.6)
    near = ", ".join(dict.fromkeys(ids[name] for name in close))
    return f"; nearest: {near}" if near else ""


def _table(entries: Sequence[CatalogEntry]) -> str:
    rows = [_COLUMNS, *(_row(entry) for entry in entries)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(_COLUMNS))]
    lines = ["  ".join(map(str.ljust, row, widths)) for row in rows]
    noun = "checkpoint" if len(entries) == 1 else "checkpoints"
    closing = f"{len(entries)} {noun}; infinity-compile catalog ID shows the settings of one"
    return "\n".join([*(line.rstrip() for line in lines), closing]) + "\n"


def _row(entry: CatalogEntry) -> tuple[str, ...]:
    length = "" if entry.max_length is None else str(entry.max_length)
    pooling = entry.pooling.value if entry.pooling else ""
    return (entry.id, entry.family, entry.task.value, length, pooling)


def _entry_to_text(entry: CatalogEntry) -> str:
    facts = [(name, value) for name, value in _facts(entry) if value]
    width = max(len(name) for name, _ in facts)
    lines = [entry.id]
    for index, (name, value) in enumerate(facts):
        is_next = index > 0 and facts[index - 1][0] == name
        lines.append(f"  {'' if is_next else name:<{width}}  {value}")
    return "\n".join(lines) + "\n"


def _facts(entry: CatalogEntry) -> list[tuple[str, str]]:
    prompts = [f"{name}: {_quoted(text)}" for name, text in entry.prompts.items()]
    config = [f"{key}: {_quoted(value)}" for key, value in entry.config.items()]
    return [
        ("family", entry.family),
        ("task", entry.task.value),
        ("pooling", _pooling(entry)),
        ("max length", "" if entry.max_length is None else f"{entry.max_length} tokens"),
        *(("prompts", line) for line in prompts),
        ("instruction", _quoted(entry.instruction) if entry.instruction else ""),
        ("compile", compile_command(entry)),
        ("serve", serve_command(entry)),
        ("request", curl_command(entry)),
        *(("config.json", line) for line in config),
        *(("source", source) for source in entry.sources),
    ]


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _pooling(entry: CatalogEntry) -> str:
    norm = {None: "", True: "normalised", False: "not normalised"}[entry.normalize]
    return ", ".join(filter(None, (entry.pooling.value if entry.pooling else "", norm)))


def compile_command(entry: CatalogEntry) -> str:
    """The command line that compiles a checkpoint into a directory of its name."""
    words = ["infinity-compile", "model", entry.id, "--out", entry.name]
    return shlex.join([*words, *_flags(entry.compile_flags)])


def serve_command(entry: CatalogEntry) -> str:
    """The command line that serves what `compile_command` makes."""
    words = ["infinity_v3", "--model-id", f"./{entry.name}"]
    return shlex.join([*words, *_flags(entry.serve_flags)])


def curl_command(entry: CatalogEntry) -> str:
    """The example request as a command line."""
    body = json.dumps(entry.request.body, ensure_ascii=False)
    header = "content-type: application/json"
    return shlex.join(["curl", f"{SERVER}{entry.request.route}", "-H", header, "-d", body])


def _flags(flags: Mapping[str, str | int]) -> list[str]:
    return [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]


def _entry_to_json(entry: CatalogEntry) -> dict[str, object]:
    return {
        "id": entry.id,
        "family": entry.family,
        "task": entry.task.value,
        "pooling": entry.pooling.value if entry.pooling else None,
        "normalize": entry.normalize,
        "max_length": entry.max_length,
        "prompts": dict(entry.prompts),
        "instruction": entry.instruction,
        "compile": dict(entry.compile_flags),
        "serve": dict(entry.serve_flags),
        "request": {"route": entry.request.route, "body": entry.request.body},
        "config": entry.config,
        "source": list(entry.sources),
        "commands": {
            "compile": compile_command(entry),
            "serve": serve_command(entry),
            "request": curl_command(entry),
        },
    }
