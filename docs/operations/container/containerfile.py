"""Reads a Containerfile into stages and steps. Knows no container tool and runs nothing."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LAYER_KEYWORDS = frozenset({"RUN", "COPY", "ADD"})
_FLAG = re.compile(r"--(?P<name>[a-z-]+)(?:=(?P<value>\S+))?\s+")
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)\}")
_LINTER_NOTE = "hadolint "


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction.

    Attributes:
        text: what follows the keyword, continued lines joined by a blank.
        purpose: the comment right above it, in one line; empty where there is none.
    """

    keyword: str
    text: str
    purpose: str

    @property
    def makes_layer(self) -> bool:
        return self.keyword in _LAYER_KEYWORDS

    @property
    def flags(self) -> Mapping[str, str]:
        """Leading `--name=value` flags."""
        return {found["name"]: found["value"] or "" for found in self._leading_flags()}

    @property
    def arguments(self) -> str:
        """The text behind the flags."""
        return self.text[sum(len(found[0]) for found in self._leading_flags()) :]

    def words(self) -> tuple[str, ...]:
        """The arguments of COPY, split as written: the sources, then the destination."""
        return tuple(shlex.split(self.arguments))

    def _leading_flags(self) -> Iterator[re.Match[str]]:
        position = 0
        while found := _FLAG.match(self.text, position):
            yield found
            position = found.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A FROM and what follows it; `name` is empty where none is given."""

    base: str
    name: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Containerfile:
    """The last stage is the image; the others are thrown away."""

    defaults: Mapping[str, str]
    stages: tuple[Stage, ...]

    @property
    def image(self) -> Stage:
        return self.stages[-1]

    def arguments(self, stage: Stage) -> dict[str, str]:
        """Names and defaults of the ARGs that a stage sees, its base's included."""
        pairs = (step.text.partition("=") for step in stage.steps if step.keyword == "ARG")
        return {**self.defaults, **{name: value for name, _, value in pairs}}


def read_containerfile(path: Path) -> Containerfile:
    """Read a file; raises ValueError for one without FROM."""
    defaults: dict[str, str] = {}
    stages: list[tuple[str, str, list[Step]]] = []
    for step in _steps(path.read_text(encoding="utf-8").splitlines()):
        if step.keyword == "FROM":
            base, _, name = step.text.partition(" AS ")
            stages.append((base, name, []))
        elif stages:
            stages[-1][2].append(step)
        elif step.keyword == "ARG":
            name, _, value = step.text.partition("=")
            defaults[name] = value
    if not stages:
        raise ValueError(f"{path}: expected a FROM instruction, found none")
    return Containerfile(
        defaults=defaults,
        stages=tuple(
            Stage(base=base, name=name, steps=tuple(steps)) for base, name, steps in stages
        ),
    )


def expand(text: str, values: Mapping[str, str]) -> str:
    """Put values in for `${NAME}`; names that the base image knows better stay as they are."""
    return _VARIABLE.sub(lambda found: values.get(found["name"], found[0]), text)


def _steps(lines: Sequence[str]) -> Iterator[Step]:
    comments: list[str] = []
    parts: list[str] = []
    for line in map(str.strip, lines):
        if line.startswith("#"):
            if not line.startswith(f"# {_LINTER_NOTE}"):
                comments.append(line.lstrip("# "))
        elif not line:
            comments.clear()
        else:
            parts.append(line.removesuffix("\\").strip())
            if not line.endswith("\\"):
                keyword, _, text = " ".join(parts).partition(" ")
                yield Step(keyword=keyword, text=text, purpose=" ".join(comments))
                comments.clear()
                parts.clear()
