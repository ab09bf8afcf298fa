"""Hypothesis strategies of decision bodies: right ones, huge ones, and texts no JSON writer makes.

Knows nothing of routes, servers or answers.
"""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

Strategy = st.SearchStrategy[Any]

_TEXTS = (
    *("", " ", "a", "the order is late", "w " * 200, "true", "False", "[MASK] [SEP] [CLS]"),
    *("größe 🙂", "深度学习 é", "e\u0301\u200d", "\x00", "\ufeffx", "\u2028", '"\\/\b', "$.q"),
)
_NUMBERS = (0, 1, -1, -0.0, 1e16, 1e308, 5e-324, 3.25, 2**63, 10**29, True, False, None)
_TEXT = st.sampled_from(_TEXTS) | st.text(max_size=20)
_VALUE: Strategy = st.recursive(
    _TEXT | st.sampled_from(_NUMBERS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_CONTENT: Strategy = (
    _TEXT | st.lists(_VALUE, max_size=3) | st.dictionaries(_TEXT, _VALUE, max_size=3)
)
STATES: Strategy = _CONTENT
"""What the questions are about: text, object or list."""

_INSTRUCTIONS = {"instructions": st.none() | _CONTENT}
_SIDES = ("true", "false", "True", "FALSE")
_LABELS = ({"false": "nein", "true": "ja"}, {"false": " no", "true": "yes "}, None)
_NOUL = st.fixed_dictionaries(
    {"type": st.just("noul")},
    optional={
        **_INSTRUCTIONS,
        "criteria": st.none()
        | st.dictionaries(st.sampled_from(_SIDES[:2]), st.none() | _CONTENT)
        | st.dictionaries(st.sampled_from(_SIDES), _VALUE),
        "labels": st.sampled_from(_LABELS),
    },
)
_CHOICE = st.fixed_dictionaries(
    {
        "type": st.just("choice"),
        "criteria": st.dictionaries(_TEXT, st.none() | _VALUE, min_size=1, max_size=6)
        | st.lists(_TEXT, min_size=1, max_size=6, unique=True),
    },
    optional=_INSTRUCTIONS,
)
_LEVEL = _VALUE.filter(lambda level: level is not None)
_SCORE = st.fixed_dictionaries(
    {"type": st.just("score"), "criteria": st.lists(_LEVEL, min_size=1, max_size=6)},
    optional=_INSTRUCTIONS,
)
_ID = st.sampled_from(("q", "a-b.c d", "질문", "0", "questions", "🙂")) | st.text(
    min_size=1, max_size=8
)
QUESTIONS: Strategy = st.dictionaries(_ID, _NOUL | _CHOICE | _SCORE, min_size=1, max_size=4)
"""Right questions by id."""

LENGTHS: Strategy = st.none() | st.sampled_from(
    (1, 8, 15, 16, 17, 64, 191, 192, 193, 319, 320, 321, 10**9, 10**25, 0, -1, 1.0, "64")
)
"""Values of `max_len` and `head_max_len`, most of them around a bound."""
_MODELS = ("jev-latest", "jev-preview", "fuzzed", "other", "", None)
_COUNTS = (0, 1, 2, 10, 26, 27, 31, 32, 33, 63, 64, 65, 128, 254, 255, 256, 510, 512, 513, 10_000)


@st.composite
def crowded_bodies(draw: st.DrawFn) -> Any:  # noqa: ANN401  # a document
    """Numbers of questions, options or levels around and far beyond the limits."""
    count, kind = draw(st.sampled_from(_COUNTS)), draw(st.sampled_from(sorted(_CROWDS)))
    name = draw(st.text(max_size=3))
    body = {"state": draw(STATES), "questions": _CROWDS[kind](count, name)}
    if draw(st.booleans()):
        body["max_len"] = draw(LENGTHS)
    return body


def _options(count: int, name: str) -> Mapping[str, object]:
    return {"type": "choice", "criteria": {f"{name}{i}": None for i in range(count)}}


_CROWDS: Mapping[str, Callable[[int, str], object]] = {
    "questions": lambda count, name: {f"{name}{i}": {"type": "noul"} for i in range(count)},
    "options": lambda count, name: {"q": _options(count, name)},
    "names": lambda count, name: {
        "q": {"type": "choice", "criteria": [f"{name}{i}" for i in range(count)]}
    },
    "levels": lambda count, name: {"q": {"type": "score", "criteria": [name or "x"] * count}},
    "in all": lambda count, name: {f"q{i}": _options(count // 3, name) for i in range(3)},
    "sides": lambda count, name: {
        "q": {"type": "noul", "criteria": {f"{name}{i}": "x" for i in range(count)}}
    },
}

_RAW = re.compile(r'"@raw (\d+)"')
_DEPTHS = (94, 95, 96, 97, 98, 99, 100, 101, 102, 5000)
_PIECES: Sequence[str] = (
    *("NaN", "Infinity", "-Infinity", "nan", "1e400", "-1e400", "1E+308", "1e-400", "-0", "-0.0"),
    *("01", "+1", ".5", "1.", "0x10", "1_000", "--1", "9" * 30, "9" * 400, "-" + "9" * 5000),
    *("1." + "0" * 400, "tru", "None", "undefined", "'x'", "// x", "/**/1", "", ",", "{,}", "[1,]"),
    *('"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude42"', '"\\u0000"', '"\\x41"', '"\t"', '"a'),
    *('{"\\udfff":1}', '{"a":1,"a":2}', '{"":"x","":"y"}', '{"a":{"b":1,"b":2}}', '{"a" 1}'),
    *('{"true":"x","true":"y"}', '{"q":{"type":"noul"},"q":{"type":"noul"}}'),
    *('{"type":"noul","type":"score"}', '{"q":{"type":"choice","criteria":{"a":1,"\\u0061":2}}}'),
    *("[" * depth + "]" * depth for depth in _DEPTHS),
    *('{"a":' * depth + "1" + "}" * depth for depth in _DEPTHS),
    *("[" * 100_000, '{"a":' * 3000),
)
_AFTER = ("", "", "", " ", "\n\t", "\x00", "x", "{}", ",", "]", "}")
_BEFORE = ("", "", "", " \n", "\ufeff", "\x00", "[", ")]}'\n")


@st.composite
def strange_texts(draw: st.DrawFn) -> bytes:
    """A body in which values were replaced by what a JSON writer would not write."""
    body = draw(
        st.fixed_dictionaries(
            {"state": _spotted(STATES), "questions": _spotted(QUESTIONS)},
            optional={
                "model": st.sampled_from(_MODELS),
                "max_len": _spotted(LENGTHS),
                "head_max_len": _spotted(LENGTHS),
                "extra": _SPOT,
            },
        )
    )
    text = json.dumps(body, ensure_ascii=draw(st.booleans()))
    text = _RAW.sub(lambda found: _PIECES[int(found[1])], text)
    text = draw(st.sampled_from(_BEFORE)) + text + draw(st.sampled_from(_AFTER))
    data = text.encode("utf-8", "surrogatepass")
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 7)) == 0 else data


_SPOT = st.integers(0, len(_PIECES) - 1).map(lambda index: f"@raw {index}")


@st.composite
def _spotted(draw: st.DrawFn, values: Strategy) -> Any:  # noqa: ANN401  # a document
    """A value, at times with a spot in it that becomes a piece of text."""
    value = draw(values)
    for _ in range(draw(st.integers(0, 1))):
        value = _with_spot(draw, value)
    return value


def _with_spot(draw: st.DrawFn, value: object) -> object:
    keys = list(value) if isinstance(value, dict) else list(range(len(_items(value))))
    if not keys or draw(st.integers(0, 3)) == 0:
        return draw(_SPOT)
    key = draw(st.sampled_from(keys))
    copy: Any = dict(value) if isinstance(value, dict) else list(_items(value))
    copy[key] = _with_spot(draw, copy[key])
    return copy


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


_POOL: Sequence[Any] = (
    *_TEXTS,
    *_NUMBERS,
    *("noul", "choice", "score", "box", "jev-latest", [], {}, [None], ["a", "b"], ["a", "a"]),
    *({"a": None, "b": "x"}, {"true": "x"}, {"messages": []}, {"type": "noul"}, [[]], 16, 64, 2048),
)
_KEYS = ("type", "criteria", "instructions", "labels", "state", "questions", "true", "q", "", "é")


def changed(document: Any, choice: random.Random) -> Any:  # noqa: ANN401  # documents
    """A copy with one or two values replaced, removed, moved, repeated or renamed.

    Made in a fraction of the time that drawing each change would take.
    """
    copy = json.loads(json.dumps(document))
    for _ in range(choice.randint(1, 2)):
        parents = [node for node in _nodes(copy) if isinstance(node, dict | list) and node]
        if not parents:
            return deepcopy(choice.choice(_POOL))
        parent = choice.choice(parents)
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        _change(parent, choice.choice(keys), choice, parents)
    return copy


def _change(parent: Any, key: Any, choice: random.Random, parents: Sequence[Any]) -> None:  # noqa: ANN401  # documents
    deed = choice.randrange(6)
    if deed <= 2:
        parent[key] = deepcopy(choice.choice(_POOL))  # later changes reach into it
    elif deed == 3:
        del parent[key]
    elif deed == 4:
        parent[key] = json.loads(json.dumps(choice.choice(parents)))
    elif isinstance(parent, dict):
        parent[choice.choice(_KEYS)] = parent.pop(key)
    else:
        parent.extend(parent[: choice.choice((1, 40))])


def _nodes(node: Any) -> list[Any]:  # noqa: ANN401  # documents
    children = node.values() if isinstance(node, dict) else _items(node)
    return [node, *(found for child in children for found in _nodes(child))]
