"""The catalog of public checkpoints: `catalog.toml` as typed entries.

Owns the form of that file. Knows nothing of the network and of what a checkpoint's weights hold.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NoReturn, TypeVar

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.artifacts.spelling import nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME = "catalog.toml"
_INSTRUCTION = "{instruction}"
_Choice = TypeVar("_Choice", bound=Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestExample:
    """A request that a server of the checkpoint answers.

    Attributes:
        route: path of the endpoint, e.g. "/embed".
        body: the JSON body.
    """

    route: str
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A public checkpoint, how to compile and to serve it.

    Attributes:
        id: id on the hub, "organisation/name".
        family: a family of the registry, e.g. "bert".
        task: what the artifact does.
        pooling: how the checkpoint makes one vector of a text's; None = it does not, or no source
            says.
        normalize: vectors have length 1; None = no source says.
        max_length: tokens per text, special ones included; None = no source says.
        prompts: name -> prefix written before a text.
        instruction: prefix whose "{instruction}" the caller fills in.
        compile_flags: long flags of infinity-compile without dashes -> value.
        serve_flags: long flags of infinity_v3 without dashes -> value.
        request: one request that fits the task.
        config: the keys of config.json that decide the family, as far as a source states them.
        sources: where these facts were read.
    """

    id: str
    family: str
    task: Kind
    pooling: PoolingMode | None
    normalize: bool | None
    max_length: int | None
    prompts: Mapping[str, str]
    instruction: str | None
    compile_flags: Mapping[str, str | int]
    serve_flags: Mapping[str, str | int]
    request: RequestExample
    config: Mapping[str, object]
    sources: tuple[str, ...]

    @property
    def name(self) -> str:
        """The id without the organisation."""
        return self.id.rpartition("/")[2]


def read_catalog() -> tuple[CatalogEntry, ...]:
    """Read the catalog that this package brings along, in its own order.

    Raises:
        UsageError: see `parse_catalog`.
    """
    return parse_catalog(Path(__file__).with_name(FILE_NAME).read_text(encoding="utf-8"))


def parse_catalog(text: str) -> tuple[CatalogEntry, ...]:
    """Read a catalog.

    Args:
        text: TOML, one `[[model]]` per checkpoint.

    Raises:
        UsageError: no TOML, an unknown or a missing key, a wrong type or value, or an id that is
            there twice; the sentence names the entry.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{FILE_NAME}: not valid TOML: {error}") from error
    top = _Table(where=FILE_NAME, values=document)
    entries = tuple(_read_entry(top, table) for table in top.tables("model"))
    top.refuse_unknown()
    _refuse_duplicates(entries)
    return entries


def find_entries(entries: Iterable[CatalogEntry], query: str) -> tuple[CatalogEntry, ...]:
    """Filter by words.

    Args:
        entries: where to look.
        query: an id, which finds that entry alone, or words that are each to be a part of the id,
            the family or the task; letters may be large or small.
    """
    known = tuple(entries)
    exact = tuple(entry for entry in known if entry.id.lower() == query.strip().lower())
    words = query.lower().split()
    return exact or tuple(entry for entry in known if _has_words(entry, words))


def config_json(entry: CatalogEntry) -> str:
    """The recorded part of the checkpoint's config.json, as JSON."""
    return json.dumps(entry.config, ensure_ascii=False, indent=2) + "\n"


def _has_words(entry: CatalogEntry, words: Iterable[str]) -> bool:
    fields = (entry.id.lower(), entry.family, entry.task.value)
    return all(any(word in text for text in fields) for word in words)


def _refuse_duplicates(entries: Iterable[CatalogEntry]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.id.lower() in seen:
            raise UsageError(f"{FILE_NAME}: {entry.id}: expected each id once, found it twice")
        seen.add(entry.id.lower())


def _read_entry(top: "_Table", values: Mapping[str, object]) -> CatalogEntry:
    table = _Table(where=top.where, values=values)
    name = table.text("id")
    table = _Table(where=f"{top.where}: {name}", values=values)
    entry = CatalogEntry(
        id=table.text("id"),
        family=table.text("family"),
        task=table.choice("task", Kind),
        pooling=table.choice("pooling", PoolingMode) if table.has("pooling") else None,
        normalize=table.flag("normalize") if table.has("normalize") else None,
        max_length=table.count("max_length") if table.has("max_length") else None,
        prompts=table.texts_by_name("prompts"),
        instruction=_read_instruction(table),
        compile_flags=table.flags("compile"),
        serve_flags=table.flags("serve"),
        request=_read_request(table),
        config=_read_config(table),
        sources=_read_sources(table),
    )
    table.refuse_unknown()
    return entry


def _read_instruction(table: "_Table") -> str | None:
    if not table.has("instruction"):
        return None
    text = table.text("instruction")
    if _INSTRUCTION not in text:
        table.refuse("instruction", f"a text with {_INSTRUCTION}")
    return text


def _read_request(table: "_Table") -> RequestExample:
    request = table.child("request")
    example = RequestExample(route=request.text("route"), body=request.json_object("body"))
    if not example.route.startswith("/"):
        request.refuse("route", "a path that starts with /")
    request.refuse_unknown()
    return example


def _read_config(table: "_Table") -> Mapping[str, object]:
    table.child("config").text("model_type")
    return table.json_object("config")


def _read_sources(table: "_Table") -> tuple[str, ...]:
    sources = table.list_of_texts("source")
    if not all(source.startswith("https://") for source in sources):
        table.refuse("source", "a list of addresses that start with https://")
    return sources


@dataclass(slots=True, kw_only=True)
class _Table:
    """A TOML table that remembers which of its keys were read."""

    where: str
    values: Mapping[str, object]
    seen: set[str] = field(default_factory=set)

    def has(self, key: str) -> bool:
        self.seen.add(key)
        return key in self.values

    def text(self, key: str) -> str:
        value = self._value(key)
        if not isinstance(value, str) or not value:
            self.refuse(key, "a text")
        return value

    def count(self, key: str) -> int:
        value = self._value(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.refuse(key, "a whole number from 1")
        return value

    def flag(self, key: str) -> bool:
        value = self._value(key)
        if not isinstance(value, bool):
            self.refuse(key, "true or false")
        return value

    def choice(self, key: str, choices: type[_Choice]) -> _Choice:
        word = self.text(key)
        by_word = {choice.value: choice for choice in choices}
        if word not in by_word:
            self.refuse(key, f"one of {', '.join(by_word)}")
        return by_word[word]

    def list_of_texts(self, key: str) -> tuple[str, ...]:
        value = self._value(key)
        if not isinstance(value, list) or not value:
            self.refuse(key, "a list of texts")
        texts = tuple(item for item in value if isinstance(item, str) and item)
        if len(texts) != len(value):
            self.refuse(key, "a list of texts")
        return texts

    def texts_by_name(self, key: str) -> Mapping[str, str]:
        """The table of texts at `key`, empty when absent."""
        if not self.has(key):
            return {}
        table = self.child(key)
        return {name: table.text(name) for name in table.values}

    def flags(self, key: str) -> Mapping[str, str | int]:
        """The table of texts and whole numbers at `key`, empty when absent."""
        if not self.has(key):
            return {}
        table = self.child(key)
        return {name: table.text_or_count(name) for name in table.values}

    def text_or_count(self, key: str) -> str | int:
        return self.text(key) if isinstance(self.values[key], str) else self.count(key)

    def child(self, key: str) -> "_Table":
        value = self._value(key)
        if not isinstance(value, dict):
            self.refuse(key, "a table")
        return _Table(where=f"{self.where}: {key}", values=value)

    def json_object(self, key: str) -> Mapping[str, object]:
        """The table at `key`, which holds nothing that JSON could not."""
        values = self.child(key).values
        try:
            json.dumps(values)
        except TypeError:
            self.refuse(key, "texts, numbers, true, false, lists and tables")
        return values

    def tables(self, key: str) -> tuple[Mapping[str, object], ...]:
        value = self._value(key)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.refuse(key, "an array of tables")
        return tuple(value)

    def refuse_unknown(self) -> None:
        for key in self.values:
            if key not in self.seen:
                hint = nearest(key, self.seen)
                raise UsageError(f"{self.where}: {key}: unknown key{hint}")

    def refuse(self, key: str, expected: str) -> NoReturn:
        found = json.dumps(self.values[key], default=str) if key in self.values else "nothing"
        raise UsageError(f"{self.where}: {key}: expected {expected}, found {found[:100]}")

    def _value(self, key: str) -> object:
        self.seen.add(key)
        return self.values.get(key)
