"""Properties of the readers of configuration, over generated values of every option."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.server.config import Configuration, all_options
from infinity_v3.server.config_merge import load_configuration
from infinity_v3.server.config_report import render_all, render_json, shown_value
from infinity_v3.server.option import Option
from infinity_v3.server.option_types import (
    BoolType,
    ChoiceType,
    DeviceListType,
    IntOrWordType,
    IntType,
    PathType,
    SecondsType,
    SwitchType,
)

quick = settings(deadline=None, max_examples=60)
OPTIONS = {option.name: option for option in all_options()}
# Read before the rest, or tied to other options by a contradiction.
APART = {"config", "print-config", "model-id", "hostname", "served-model-name"}
FREE = [option for option in OPTIONS.values() if option.name not in APART]
PLAIN = "abcXYZ019 .,/:-_äß漢"
WORDS = st.text(PLAIN, min_size=1, max_size=12)
PATTERNS: Mapping[str, st.SearchStrategy[str]] = {
    "api-key": st.from_regex(r"[!-~]{1,12}", fullmatch=True),
    "cors-allow-origin": st.sampled_from(["*", "null", "https://a.example", "app://b:1"]),
    "decision-alias": st.sampled_from(["old=new", "jev-latest=a/b", "a b=c=d"]),
    "backend": st.sampled_from(["auto", "aoti", "libtorch"]),
}


def values_of(option: Option) -> st.SearchStrategy[Any]:
    """Values that the option can take, as TOML would hold them."""
    if option.name in PATTERNS:
        return PATTERNS[option.name]
    make = STRATEGIES.get(type(option.value_type))
    return WORDS if make is None else make(option.value_type)


def _integers(kind: IntType) -> st.SearchStrategy[int]:
    return st.integers(kind.minimum, 10**6 if kind.maximum is None else kind.maximum)


def _devices() -> st.SearchStrategy[str]:
    ordinals = st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True)
    return ordinals.map(lambda found: ",".join(map(str, found))) | st.just("auto")


STRATEGIES: Mapping[type, Callable[[Any], st.SearchStrategy[Any]]] = {
    IntType: _integers,
    IntOrWordType: lambda kind: _integers(kind.number) | st.just(kind.word),
    SecondsType: lambda _: st.floats(0.001, 86400) | st.integers(1, 86400),
    BoolType: lambda _: st.booleans(),
    SwitchType: lambda kind: st.booleans() | st.just(kind.word),
    ChoiceType: lambda kind: st.sampled_from(list(kind.choices)),
    DeviceListType: lambda _: _devices(),
    PathType: lambda _: WORDS.map(lambda text: f"/{text}"),
}


OPTION_AND_VALUE = st.sampled_from(FREE).flatmap(
    lambda option: st.tuples(st.just(option), values_of(option))
)


def typed(value: object) -> str:
    """A value as a user types it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def toml_of(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def line_of(option: Option, value: object) -> str:
    return f"{option.name} = {toml_of([value] if option.is_repeatable else value)}"


def load(
    flags: Mapping[str, Sequence[str]], env: Mapping[str, str] | None = None, toml: str = ""
) -> Configuration:
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(toml)
        file.flush()
        return load_configuration({**flags, "config": [file.name]}, env or {})


def value_in(configuration: Configuration, option: Option) -> object:
    holder = configuration.serve.models[0] if option.is_per_model else configuration.serve
    return getattr(holder, option.field)


@quick
@given(OPTION_AND_VALUE)
def test_every_source_reads_the_same(drawn: tuple[Option, Any]) -> None:
    option, value = drawn
    base = {"model-id": ["m"]}
    found = [
        load({**base, option.name: [typed(value)]}),
        load(base, {option.env_name: typed(value)}),
        load(base, toml=line_of(option, value)),
        load(base, toml=f"[serve]\n{line_of(option, value)}"),
    ]
    if option.is_per_model:
        found.append(load({}, toml=f"[[model]]\nmodel-id = 'm'\n{line_of(option, value)}"))
    assert {repr(value_in(one, option)) for one in found} == {repr(value_in(found[0], option))}


@quick
@given(OPTION_AND_VALUE)
def test_what_is_shown_can_be_typed(drawn: tuple[Option, Any]) -> None:
    option, value = drawn
    first = load({"model-id": ["m"], option.name: [typed(value)]})
    shown = shown_value(option, value_in(first, option))
    assert f"{option.name}={shown} (command line)\n" in render_all(first)
    if not option.is_secret:
        again = load({"model-id": ["m"], option.name: [shown]})
        assert value_in(again, option) == value_in(first, option)


SOURCES = ("top level", "[serve]", "env", "command line")


@quick
@given(
    st.sampled_from([option for option in FREE if not option.is_repeatable]).flatmap(
        lambda option: st.tuples(
            st.just(option),
            st.dictionaries(st.sampled_from(SOURCES), values_of(option), min_size=1),
        )
    )
)
def test_the_strongest_source_wins(drawn: tuple[Option, dict[str, Any]]) -> None:
    option, given_values = drawn
    flags, env, toml = {"model-id": ["m"]}, {}, ""
    if "top level" in given_values:
        toml += line_of(option, given_values["top level"]) + "\n"
    if "[serve]" in given_values:
        toml += "[serve]\n" + line_of(option, given_values["[serve]"])
    if "env" in given_values:
        env[option.env_name] = typed(given_values["env"])
    if "command line" in given_values:
        flags[option.name] = [typed(given_values["command line"])]
    loaded = load(flags, env, toml)
    winner = next(source for source in reversed(SOURCES) if source in given_values)
    alone = load({"model-id": ["m"], option.name: [typed(given_values[winner])]})
    assert value_in(loaded, option) == value_in(alone, option)
    (origin,) = loaded.origins[option.name]
    assert origin.endswith(winner if winner != "env" else f"env {option.env_name}")


PER_MODEL = [option for option in FREE if option.is_per_model]


@quick
@given(
    st.integers(1, 5),
    st.sampled_from(PER_MODEL).flatmap(
        lambda option: st.tuples(
            st.just(option), st.lists(values_of(option), min_size=1, max_size=5)
        )
    ),
    st.booleans(),
)
def test_one_value_for_all_or_one_for_each(
    num_models: int, drawn: tuple[Option, list[Any]], is_repeated: bool
) -> None:
    option, values = drawn
    texts = [typed(value) for value in values]
    flags = {
        "model-id": [f"m{index}" for index in range(num_models)],
        option.name: texts if is_repeated else [";".join(texts)],
    }
    if len(values) not in {1, num_models}:
        with pytest.raises(UsageError, match=rf"has {len(values)} values .* for {num_models} mod"):
            load(flags)
        return
    models = load(flags).serve.models
    expected = texts * num_models if len(texts) == 1 else texts
    for model, text in zip(models, expected, strict=True):
        alone = load({"model-id": ["m"], option.name: [text]}).serve.models[0]
        assert getattr(model, option.field) == getattr(alone, option.field)


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, list[str]]:
    """Flags of a valid configuration of one to three models."""
    num_models = draw(st.integers(1, 3))
    flags = {"model-id": [f"m{index}" for index in range(num_models)]}
    clashing = {"default-prompt-name", "backend-device-ids", "torch-device", "max-sequence-length"}
    chosen = draw(st.lists(st.sampled_from(FREE), unique=True, max_size=8))
    for option in chosen:
        if option.name not in clashing:
            count = num_models if option.is_per_model else 1
            flags[option.name] = [typed(draw(values_of(option))) for _ in range(count)]
    return flags


@quick
@given(configurations())
def test_the_report_for_programs_round_trips(flags: dict[str, list[str]]) -> None:
    flags.pop("api-key", None)
    flags.pop("prometheus-port", None)
    first = load(flags)
    report = json.loads(render_json(first))
    again: dict[str, list[str]] = {}
    for name, entry in report["serve"].items():
        if entry["origin"] == "command line" and name != "config":
            value = entry["value"]
            found = value if isinstance(value, list) else [value]
            again[name] = [shown_value(OPTIONS[name], one) for one in found]
    for name, entry in report["models"][0].items():
        if entry["origin"] == "command line":
            again[name] = [
                shown_value(OPTIONS[name], model[name]["value"]) for model in report["models"]
            ]
    second = load(again)
    assert second.serve.models == first.serve.models
    changed = {"config": None}
    assert _facts(second, changed) == _facts(first, changed)


def _facts(configuration: Configuration, ignored: Mapping[str, object]) -> dict[str, object]:
    serve = configuration.serve
    return {
        option.name: getattr(serve, option.field)
        for option in OPTIONS.values()
        if not option.is_per_model and option.name not in ignored
    }


ANY_TEXT = st.text(max_size=20) | st.sampled_from(
    ["", ";", "none", "auto", "0", "-1", "\x00", "~", "~x/y", "\udcff", "https://\udcff", "a\nb"]
)


@quick
@given(st.sampled_from(list(OPTIONS.values())), ANY_TEXT, st.booleans())
def test_any_text_is_accepted_or_refused_in_one_sentence(
    option: Option, text: str, is_flag: bool
) -> None:
    flags = {"model-id": ["m"], option.name: [text]} if is_flag else {"model-id": ["m"]}
    env = {} if is_flag else {option.env_name: text}
    try:
        loaded = load_configuration(flags, env)
    except UsageError:
        return
    assert render_json(loaded).isascii()
    lines = render_all(loaded).encode().splitlines()
    assert len(lines) == sum(map(len, loaded.origins.values()))


TOML_VALUES = st.recursive(
    st.booleans() | st.integers(-(10**20), 10**20) | st.text(PLAIN, max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
TABLES = st.dictionaries(
    st.sampled_from([*OPTIONS, "serve", "model", "cli", "prot"]), TOML_VALUES, max_size=3
)


def table_text(title: str, table: Mapping[str, object]) -> str:
    return "\n".join([title, *(f"{name} = {toml_of(value)}" for name, value in table.items())])


@quick
@given(TABLES, st.none() | TABLES, st.lists(TABLES, max_size=2))
def test_any_file_is_accepted_or_refused_in_one_sentence(
    top: Mapping[str, object],
    serve: Mapping[str, object] | None,
    models: Sequence[Mapping[str, object]],
) -> None:
    parts = [table_text("", top)]
    if serve is not None:
        parts.append(table_text("[serve]", serve))
    parts += [table_text("[[model]]", {"model-id": "m", **model}) for model in models]
    try:
        loaded = load({}, toml="\n".join(parts))
    except UsageError:
        return
    assert len(loaded.serve.models) >= 1
    assert render_json(loaded)
