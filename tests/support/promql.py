"""Reads PromQL as far as names go: which metrics, with which labels and values. No evaluation."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")|(?P<range>\[[^\]]*\])|(?P<word>[a-zA-Z_:][\w:]*)"""
    r"""|(?P<number>\d[\w.]*)|(?P<op>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){},])|\s+"""
)
_GROUPING = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_OPERATORS = frozenset({"and", "or", "unless", "bool", "offset"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """One metric as an expression selects it; `matchers` are (label, operator, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Everything that an expression names."""

    selectors: tuple[Selector, ...]
    grouped: frozenset[str]


def names_of(expression: str) -> Names:
    """What the expression names; a character that is no PromQL fails."""
    tokens = list(_tokens(expression))
    selectors: list[Selector] = []
    grouped: set[str] = set()
    place = 0
    while place < len(tokens):
        kind, text = tokens[place]
        after = tokens[place + 1][1] if place + 1 < len(tokens) else ""
        place += 1
        if kind != "word" or text in _OPERATORS:
            continue
        if text in _GROUPING:
            end = _closing(tokens, place, ")")
            grouped |= {word for kind, word in tokens[place:end] if kind == "word"}
            place = end + 1
        elif after == "{":
            end = _closing(tokens, place, "}")
            selectors.append(
                Selector(name=text, matchers=tuple(_matchers(tokens[place + 1 : end])))
            )
            place = end + 1
        elif after != "(" and after not in _GROUPING:
            selectors.append(Selector(name=text, matchers=()))
    return Names(selectors=tuple(selectors), grouped=frozenset(grouped))


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(expression):
        found = _TOKEN.match(expression, place)
        assert found is not None, f"no PromQL: {expression[place:]!r}"
        place = found.end()
        if found.lastgroup is not None:
            yield found.lastgroup, found[found.lastgroup]


def _closing(tokens: list[tuple[str, str]], place: int, bracket: str) -> int:
    return next(i for i in range(place, len(tokens)) if tokens[i][1] == bracket)


def _matchers(tokens: list[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    parts = [token for token in tokens if token[1] != ","]
    for label, operator, value in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        assert (label[0], operator[0], value[0]) == ("word", "op", "text"), tokens
        yield label[1], operator[1], value[1].strip('"')


LabelValues = Mapping[str, Mapping[str, frozenset[str]]]
"""Metric -> label -> values, as the server shows them."""


def complaints(expression: str, known: LabelValues, added: frozenset[str]) -> list[str]:
    """What an expression names that the server does not have.

    Args:
        expression: PromQL without dashboard variables outside of texts.
        known: what the server shows.
        added: labels that the scraper adds.
    """
    found = names_of(expression)
    labels: set[str] = set(added)
    wrong: list[str] = []
    for selector in found.selectors:
        own = known.get(selector.name)
        if own is None:
            wrong.append(f"no metric {selector.name}")
            continue
        labels |= set(own)
        for label, operator, value in selector.matchers:
            wrong += _wrong_matcher(selector.name, own, added, (label, operator, value))
    return wrong + [f"no label {label}" for label in found.grouped - labels]


def _wrong_matcher(
    name: str,
    own: Mapping[str, frozenset[str]],
    added: frozenset[str],
    matcher: tuple[str, str, str],
) -> list[str]:
    label, operator, value = matcher
    if label not in own and label not in added:
        return [f"{name} has no label {label}"]
    if "$" in value or label not in own:
        return []
    wanted = value.split("|") if operator == "=~" else [value]
    return [f"{name} has no {label}={one!r}" for one in wanted if one not in own[label]]
