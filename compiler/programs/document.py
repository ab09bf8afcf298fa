"""The two JSON files of a kept program: what it was kept for, and its graph.

Owns their format and what a graph may hold before torch reads it. Knows nothing of torch: the graph
is the schema of torch's own export, less what names machines and what only torch's debugging reads.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from infinity_v3.artifacts.manifest import Limits, Precision
from infinity_v3.artifacts.typed_json import (
    JsonObject,
    Location,
    canonical_bytes,
    check_canonical,
    check_keys,
    check_object,
    from_json,
    parse,
    show,
    to_json,
)

FORMAT = "infinity-program"
FORMAT_VERSION = 1
_KEYS = ("graph", "opset_version", "range_constraints", "schema_version", "signature")
_ARITHMETIC = "add|and_|eq|floordiv|ge|getitem|gt|le|lt|mod|mul|ne|neg|not_|or_|pow|sub|truediv"
"""Of Python's operators: others call what they are given."""
_OPERATOR = re.compile(
    rf"torch\.ops\.(aten|infinity)\.\w+\.\w+|torch\.sym_\w+|_operator\.({_ARITHMETIC})|math\.[a-z]+",
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*", re.ASCII)
_EXPRESSION = re.compile(r"('[su][0-9]+'|[A-Za-z]+|[0-9]+|[(), =-])*")
_WORD = re.compile(r"(?<!')\b[A-Za-z]+")
_WORDS = frozenset(
    (
        *("Symbol", "Integer", "Rational", "positive", "nonnegative", "integer", "real"),
        *("True", "False", "Add", "Mul", "Pow", "Max", "Min", "Mod"),
        *("FloorDiv", "CeilDiv", "CleanDiv", "PythonMod", "ModularIndexing", "PowByNatural"),
        *("Equality", "Unequality", "Eq", "Ne", "Lt", "Le", "Gt", "Ge"),
        *("StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"),
    )
)
"""What sizes are made of: torch evaluates the expressions."""
_FOREIGN = frozenset({"as_custom_obj", "as_graph", "as_operator", "custom_obj", "token"})
"""Kinds of values that no exported encoder has, and that lead to other code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    """The whole of program.json.

    Attributes:
        kernel_abi: of our operators in the graph.
        torch: release whose schema the graph is written in.
        tied: names of tensors that are another one, by its name.
        strides: of the tensors that do not lie row by row.
    """

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    precision: Precision
    kernel_abi: str
    torch: str
    limits: Limits
    tied: Mapping[str, str] = field(default_factory=dict)
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def encode_facts(facts: ProgramFacts) -> bytes:
    """Serialise to canonical bytes."""
    return canonical_bytes(to_json(facts), Location("program.json"))


def decode_facts(data: bytes, at: Location) -> ProgramFacts:
    """Read program.json strictly.

    Raises:
        RefusedError: names the key at fault.
    """
    document = check_object(parse(data, at), at)
    for key, expected in (("format", FORMAT), ("format_version", FORMAT_VERSION)):
        found = document.get(key, expected)
        if type(found) is not type(expected) or found != expected:
            raise at.key(key).refuse(
                f"expected {show(expected)}, found {show(found)}; add targets with the release "
                "that kept the program"
            )
    facts = from_json(document, ProgramFacts, at)
    check_canonical(data, document, at)
    return facts


def encode_graph(exported: Mapping[str, object], at: Location) -> bytes:
    """Reduce the JSON form of torch's exported program to what makes the graph, canonically.

    Args:
        exported: as torch serialises it.
        at: named in errors.

    Raises:
        RefusedError: the graph holds what a kept program may not.
    """
    module = cast(Mapping[str, object], exported["graph_module"])
    found = {**exported, **module}
    data = canonical_bytes(_without_metadata({key: found[key] for key in _KEYS}), at)
    decode_graph(data, at)
    return data


def decode_graph(data: bytes, at: Location) -> JsonObject:
    """Read and check a graph; gives it in the form in which torch reads it.

    Raises:
        RefusedError: other keys, an operator, a name or an expression that no encoder has.
    """
    document = check_keys(parse(data, at), _KEYS, at)
    check_canonical(data, document, at)
    for where, key, value in _members(document, at):
        _check_member(where, key, value)
    module = JsonObject(
        graph=document["graph"],
        signature=document["signature"],
        metadata={},
        treespec_namedtuple_fields={},
    )
    rest = {key: document[key] for key in ("opset_version", "range_constraints", "schema_version")}
    return JsonObject(graph_module=module, **rest)


def _without_metadata(value: object) -> object:
    """Traces of the stack hold paths of the machine that exported."""
    if isinstance(value, Mapping):
        return {
            key: {} if key == "metadata" else _without_metadata(item) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without_metadata(item) for item in value]
    return value


def _members(value: object, at: Location) -> Iterator[tuple[Location, str, object]]:
    """Every key of every object, depth first."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _members(item, at.item(index))
    elif isinstance(value, dict):
        for key, item in check_object(value, at).items():
            yield at.key(key), key, item
            yield from _members(item, at.key(key))


def _check_member(at: Location, key: str, value: object) -> None:
    if key in _FOREIGN:
        raise at.refuse("a kept program holds no such value")
    if key == "metadata" and value != {}:
        raise at.refuse("expected an empty object")
    if key == "target" and not _fits(_OPERATOR, value):
        raise at.refuse(f"expected an operator of torch or of infinity, found {show(value)}")
    if key.endswith("name") and value is not None and not _fits(_NAME, value):
        raise at.refuse(f"expected a name, found {show(value)}")
    if key == "expr_str" and not _is_expression(value):
        raise at.refuse(f"expected a size made of symbols and numbers, found {show(value)}")


def _fits(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_expression(value: object) -> bool:
    return (
        isinstance(value, str)
        and _fits(_EXPRESSION, value)
        and {word for word in _WORD.findall(value)} <= _WORDS
    )
