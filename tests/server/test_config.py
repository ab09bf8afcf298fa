"""Where options come from, what wins, and what is refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import InfinityError, UsageError
from infinity_v3.server.config import Configuration, ModelConfig, ServeConfig, all_options
from infinity_v3.server.config_merge import load_configuration
from infinity_v3.server.config_report import changed_lines, render_all

BASE = {"model-id": ["m"]}


def load(
    flags: Mapping[str, Sequence[str]] | None = None,
    env: Mapping[str, str] | None = None,
    toml: str | None = None,
    tmp_path: Path | None = None,
) -> Configuration:
    given = dict(flags if flags is not None else BASE)
    if toml is not None:
        assert tmp_path is not None
        path = tmp_path / "serve.toml"
        path.write_text(toml, encoding="utf-8")
        given["config"] = [str(path)]
    return load_configuration(given, env or {})


def test_every_field_is_one_option_with_a_help_text() -> None:
    options = all_options()
    assert len({option.name for option in options}) == len(options)
    assert len({option.env_name for option in options}) == len(options)
    assert {option.field for option in options if option.is_per_model} == set(
        ModelConfig.__dataclass_fields__
    )
    of_process = {option.field for option in options if not option.is_per_model}
    assert of_process == set(ServeConfig.__dataclass_fields__) - {"models"}
    assert all(len(option.help_text) > 20 for option in options)


def test_precedence_from_weakest_to_strongest(tmp_path: Path) -> None:
    toml = 'port = 1\nhostname = "a"\npayload-limit = 1\nlog-level = "error"\n'
    toml += '[serve]\nhostname = "b"\npayload-limit = 2\nlog-level = "warning"\n'
    env = {"INFINITY_PAYLOAD_LIMIT": "3", "INFINITY_LOG_LEVEL": "debug"}
    flags = {**BASE, "log-level": ["info"]}
    loaded = load(flags, env, toml, tmp_path)
    serve = loaded.serve
    assert (serve.port, serve.hostname) == (1, "b")
    assert (serve.payload_limit, serve.log_level) == (3, "info")
    path = tmp_path / "serve.toml"
    assert loaded.origins["port"] == (f"{path} top level",)
    assert loaded.origins["hostname"] == (f"{path} [serve]",)
    assert loaded.origins["payload-limit"] == ("env INFINITY_PAYLOAD_LIMIT",)
    assert loaded.origins["log-level"] == ("command line",)
    assert loaded.origins["http2"] == ("default",)
    assert not loaded.is_explicit("http2")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"PORT": "81"}, 81),
        ({"PORT": "81", "INFINITY_PORT": "82"}, 82),
        ({"PORT": "81", "INFINITY_PORT": ""}, 81),
        ({"INFINITY_PORT": ""}, 3000),
    ],
)
def test_unprefixed_and_empty_variables(env: dict[str, str], expected: int) -> None:
    assert load(env=env).serve.port == expected


def test_model_lists_split_repeat_and_broadcast() -> None:
    flags = {
        "model-id": ["a;b", "c"],
        "dtype": ["float32"],
        "max-batch-tokens": ["10;20;30"],
        "default-prompt": ["x", "none", "z"],
        "auto-truncate": ["false;true;false"],
    }
    models = load(flags).serve.models
    assert [model.model_id for model in models] == ["a", "b", "c"]
    assert {model.dtype for model in models} == {"float32"}
    assert [model.max_batch_tokens for model in models] == [10, 20, 30]
    assert [model.default_prompt for model in models] == ["x", None, "z"]
    assert [model.auto_truncate for model in models] == [False, True, False]


def test_empty_default_prompt_switches_it_off() -> None:
    assert load({**BASE, "default-prompt": [""]}).serve.models[0].default_prompt == ""


def test_repeatable_option_accumulates_on_the_command_line_only(tmp_path: Path) -> None:
    toml = 'cors-allow-origin = ["a://a"]\n[serve]\ncors-allow-origin = ["b://b"]'
    flags = {**BASE, "cors-allow-origin": ["c://c", "null"]}
    found = load(flags, {}, toml, tmp_path).serve.cors_allow_origin
    assert found == ("b://b", "c://c", "null")
    env = {"INFINITY_CORS_ALLOW_ORIGIN": "*"}
    found = load(flags, env, toml, tmp_path).serve.cors_allow_origin
    assert found == ("*", "c://c", "null")


@pytest.mark.parametrize("origin", ["foo", "https://a/b", "https://", "https://a b", ""])
def test_an_origin_that_no_browser_sends_is_refused(origin: str) -> None:
    with pytest.raises(UsageError, match=r"^--cors-allow-origin.*expected scheme://host"):
        load({**BASE, "cors-allow-origin": [origin]})


@pytest.mark.parametrize("key", ["é", "a\nb", " a", "a ", "a\x00"])
def test_a_key_that_no_client_can_send_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(
        UsageError, match=r"^--api-key \*\*\*: expected one or more printable"
    ) as caught:
        load({**BASE, "api-key": [key]})
    assert repr(key) not in str(caught.value)


def test_a_misspelt_variable_is_compared_without_its_prefix() -> None:
    (warning,) = load(BASE, {"INFINITY_NOSUCH": "1"}).warnings
    assert "did you mean" not in warning
    (warning,) = load(BASE, {"INFINITY_PROT": "1"}).warnings
    assert warning.endswith("; did you mean INFINITY_PORT?")


def test_model_tables(tmp_path: Path) -> None:
    toml = """
    dtype = "float32"
    [serve]
    max-concurrent-requests = 7
    [[model]]
    model-id = "a;not-split"
    served-model-name = "one"
    [[model]]
    model-id = "b"
    max-concurrent-requests = 9
    default-prompt = "x;y"
    """
    loaded = load({}, {}, toml, tmp_path)
    first, second = loaded.serve.models
    assert (first.model_id, first.served_model_name) == ("a;not-split", "one")
    assert (first.max_concurrent_requests, second.max_concurrent_requests) == (7, 9)
    assert (first.dtype, second.dtype, second.default_prompt) == ("float32", "float32", "x;y")
    path = tmp_path / "serve.toml"
    assert loaded.origins["max-concurrent-requests"] == (
        f"{path} [serve]",
        f"{path} [[model]] #2",
    )


def test_environment_overrides_every_model_table(tmp_path: Path) -> None:
    toml = '[[model]]\nmodel-id = "a"\ndtype = "float16"\n[[model]]\nmodel-id = "b"'
    loaded = load({}, {"INFINITY_DTYPE": "float32"}, toml, tmp_path)
    assert [model.dtype for model in loaded.serve.models] == ["float32", "float32"]


def test_model_id_from_the_command_line_sets_the_tables_aside(tmp_path: Path) -> None:
    toml = '[[model]]\nmodel-id = "a"\ndtype = "float16"'
    loaded = load({"model-id": ["c"]}, {}, toml, tmp_path)
    assert [(m.model_id, m.dtype) for m in loaded.serve.models] == [("c", "auto")]
    (warning,) = loaded.warnings
    assert "[[model]]" in warning


def test_unknown_variables_are_warnings_with_the_nearest_name() -> None:
    env = {"INFINITY_PORTS": "1", "INFINITY_COMPILE_THREADS": "1"}
    (warning,) = load(env=env).warnings
    assert "INFINITY_PORTS" in warning
    assert "did you mean INFINITY_PORT?" in warning


def test_sibling_tables_are_skipped(tmp_path: Path) -> None:
    assert load(BASE, {}, '[cli]\nanything = "goes"', tmp_path).serve.port == 3000


def test_seconds_accept_integers(tmp_path: Path) -> None:
    serve = load(BASE, {}, "drain-timeout = 5", tmp_path).serve
    assert serve.drain_timeout_s == 5.0


@pytest.mark.parametrize(
    ("flags", "env", "fragments"),
    [
        ({}, {}, ["--model-id is missing"]),
        ({**BASE, "port": ["x"]}, {}, ["--port x", "integer"]),
        ({**BASE, "port": ["65536"]}, {}, ["--port 65536", "65535"]),
        (BASE, {"INFINITY_PORT": "1.5"}, ["INFINITY_PORT=1.5"]),
        (BASE, {"INFINITY_PORT": "tcp://10.0.0.1:80"}, ["enableServiceLinks"]),
        ({**BASE, "dtype": ["int8"]}, {}, ["--dtype int8", "float32"]),
        ({**BASE, "http2": ["maybe"]}, {}, ["--http2 maybe", "true or false"]),
        ({**BASE, "drain-timeout": ["nan"]}, {}, ["--drain-timeout nan"]),
        ({**BASE, "body-read-timeout": ["0"]}, {}, ["--body-read-timeout 0"]),
        ({**BASE, "api-key": [""]}, {}, ["--api-key ***", "expected one or more"]),
        (BASE, {"INFINITY_API_KEY": ""}, ["INFINITY_API_KEY", "unset it"]),
        ({**BASE, "torch-device": ["cuda"]}, {}, ["expected one of auto, cpu, found"]),
        ({**BASE, "pooling": ["splade"]}, {}, ["--pooling splade", "last-token, found"]),
        ({**BASE, "dtype": ["auto;auto"]}, {}, ["2 values", "for 1 model;"]),
        ({"model-id": ["a;;b"]}, {}, ["--model-id", "empty"]),
        ({"model-id": ["a;b;c"], "dtype": ["auto;auto"]}, {}, ["2 values", "3 models"]),
        (
            {**BASE, "default-prompt": ["x"], "default-prompt-name": ["y"]},
            {},
            ["--default-prompt (command line)", "exclude each other"],
        ),
        (
            {"model-id": ["a;b"], "served-model-name": ["x"]},
            {},
            ["--served-model-name x", "two models"],
        ),
        ({**BASE, "hostname": ["1.2.3.999"]}, {}, ["--hostname 1.2.3.999"]),
        ({**BASE, "hostname": ["a b"]}, {}, ["--hostname a b"]),
        ({**BASE, "port": ["9000"]}, {}, ["--prometheus-port 9000", "--port"]),
        ({**BASE, "max-batch-tokens": ["0"]}, {}, ["--max-batch-tokens 0"]),
        ({**BASE, "max-batch-tokens": ["none"]}, {}, ["--max-batch-tokens none"]),
    ],
)
def test_refusals(flags: dict[str, list[str]], env: dict[str, str], fragments: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        load(flags, env)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "fragment"),
    [
        ("prot = 1", "top level prot: unknown key; did you mean port?"),
        ("max_batch_tokens = 1", "did you mean max-batch-tokens?"),
        ("[server]\nport = 1", "server: unknown table; did you mean serve?"),
        ("[serve]\nconfig = 'x'", "[serve] config: unknown key"),
        ("port = '1'", "expected an integer, found a string"),
        ("port = true", "expected an integer, found a boolean"),
        ("http2 = 1", "expected a boolean, found an integer"),
        ("drain-timeout = '1'", "expected a float, found a string"),
        ("port = [1]", "expected one value, found an array"),
        ("cors-allow-origin = 'x'", "expected an array, found a string"),
        ("model-id = []", "empty array"),
        ("[[model]]\ndtype = 'auto'", "[[model]] #1: model-id is missing"),
        ("[[model]]\nmodel-id = 'a'\nport = 1", "port: not a per-model option"),
        ("[[model]]\nmodel-id = ['a']", "expected one value, found an array"),
        ("model-id = 'b'\n[[model]]\nmodel-id = 'a'", "keep one"),
        ("dtype = ['auto']\n[[model]]\nmodel-id = 'a'", "cannot be combined"),
        ("[model]\nmodel-id = 'a'", "expected tables [[model]]"),
        ("serve = 1", "expected a table [serve]"),
        ("x = ", "not a TOML file"),
        ("api-key = ''", "expected one or more printable"),
    ],
)
def test_file_refusals(toml: str, fragment: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load({}, {}, toml, tmp_path)
    assert fragment in str(caught.value)
    assert str(tmp_path / "serve.toml") in str(caught.value)


def test_missing_file() -> None:
    with pytest.raises(UsageError, match=r"--config /nonexistent/serve\.toml: the file cannot"):
        load({**BASE, "config": ["/nonexistent/serve.toml"]})


def test_api_key_is_never_shown() -> None:
    loaded = load({**BASE, "api-key": ["hush"]})
    assert "api-key=*** (command line)" in changed_lines(loaded)
    assert "hush" not in render_all(loaded)
    assert "port=3000 (default)\n" in render_all(loaded)


def test_an_empty_key_variable_is_unset_where_another_source_gives_a_key(tmp_path: Path) -> None:
    empty = {"INFINITY_API_KEY": ""}
    assert load({**BASE, "api-key": ["hush"]}, empty).serve.api_key == "hush"
    assert load(BASE, empty, "api-key = 'hush'", tmp_path).serve.api_key == "hush"


def test_file_named_by_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("port = 4", encoding="utf-8")
    assert load(BASE, {"INFINITY_CONFIG": str(path)}).serve.port == 4


@pytest.mark.parametrize("hostname", ["::", "::1", "localhost", "10.0.0.1", "a-b.example"])
def test_hostnames(hostname: str) -> None:
    assert load({**BASE, "hostname": [hostname]}).serve.hostname == hostname


def test_errors_carry_exit_codes() -> None:
    with pytest.raises(InfinityError) as caught:
        load({})
    assert caught.value.exit_code == 2
