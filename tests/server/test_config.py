"""Where options come from, what wins, and what is refused."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import InfinityError, UsageError
from infinity_v3.server.config import Configuration, ModelConfig, ServeConfig, all_options
from infinity_v3.server.config_merge import load_configuration
from infinity_v3.server.config_report import changed_lines, render_all, render_json

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
        ({"AIP_HTTP_PORT": "8080"}, 8080),
        ({"AIP_HTTP_PORT": "8080", "PORT": "81"}, 81),
        ({"AIP_HTTP_PORT": ""}, 3000),
    ],
)
def test_unprefixed_and_empty_variables(env: dict[str, str], expected: int) -> None:
    assert load(env=env).serve.port == expected


def test_the_platforms_port_is_the_last_resort(tmp_path: Path) -> None:
    env = {"AIP_HTTP_PORT": "8080"}
    loaded = load(BASE, env)
    assert loaded.origins["port"] == ("env AIP_HTTP_PORT",)
    assert load(BASE, env, "port = 5", tmp_path).serve.port == 5
    assert load({**BASE, "port": ["6"]}, env).serve.port == 6


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"MAX_SEQUENCE_LENGTH": "9"}, [9, 9]),
        ({"MAX_SEQUENCE_LENGTH": "9;none"}, [9, None]),
        ({"MAX_SEQUENCE_LENGTH": "9", "INFINITY_MAX_SEQUENCE_LENGTH": "8"}, [8, 8]),
    ],
)
def test_unprefixed_sequence_length(env: dict[str, str], expected: list[int | None]) -> None:
    models = load({"model-id": ["a;b"]}, env).serve.models
    assert [model.max_sequence_length for model in models] == expected


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


def test_an_empty_prompt_of_one_model() -> None:
    models = load({"model-id": ["a;b"], "default-prompt": ["", "x"]}).serve.models
    assert [model.default_prompt for model in models] == ["", "x"]


def test_per_model_options_never_accumulate(tmp_path: Path) -> None:
    toml = 'model-id = ["a", "b"]\ndtype = ["float32", "auto"]'
    models = load({"dtype": ["float16"]}, {"INFINITY_DTYPE": "auto;auto"}, toml, tmp_path).serve
    assert [model.dtype for model in models.models] == ["float16", "float16"]


def test_devices_of_each_model() -> None:
    flags = {"model-id": ["a;b;c"], "device-id": ["1;none;none"]}
    env = {"INFINITY_BACKEND_DEVICE_IDS": "none;0,02;auto", "INFINITY_ENABLE_FP8_DYNAMIC": "true"}
    models = load(flags, env).serve.models
    assert [model.device_id for model in models] == [1, None, None]
    assert [model.backend_device_ids for model in models] == [None, "0,2", "auto"]
    assert all(model.enable_fp8_dynamic for model in models)


def test_a_default_metrics_port_gives_way_to_the_main_one() -> None:
    serve = load({**BASE, "port": ["9000"]}).serve
    assert (serve.port, serve.prometheus_port) == (9000, 9000)


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
    assert warning == "the [[model]] tables are set aside: model-id comes from command line"


def test_an_array_stands_beside_tables_that_are_set_aside(tmp_path: Path) -> None:
    toml = 'dtype = ["float32", "auto"]\n[[model]]\nmodel-id = "a"'
    models = load({}, {"INFINITY_MODEL_ID": "b;c"}, toml, tmp_path).serve.models
    assert [(m.model_id, m.dtype) for m in models] == [("b", "float32"), ("c", "auto")]


def test_unknown_variables_are_warnings_with_the_nearest_name() -> None:
    env = {"INFINITY_PORTS": "1", "INFINITY_COMPILE_THREADS": "1"}
    (warning,) = load(env=env).warnings
    assert "INFINITY_PORTS" in warning
    assert "did you mean INFINITY_PORT?" in warning


@pytest.mark.parametrize("table", ["cli", "compile"])
def test_sibling_tables_are_skipped(table: str, tmp_path: Path) -> None:
    toml = f'[{table}]\nanything = "goes"\n[{table}.nested]\nx = 1'
    assert load(BASE, {}, toml, tmp_path).serve.port == 3000


def test_a_file_may_ask_for_the_report(tmp_path: Path) -> None:
    for toml, word in (("true", "true"), ("false", "false"), ('"json"', "json")):
        assert load(BASE, {}, f"print-config = {toml}", tmp_path).serve.print_config == word


def test_relative_paths_stay_relative_to_the_working_directory(tmp_path: Path) -> None:
    serve = load(BASE, {}, 'artifact-cache = "cache"\nrequest-log = "~/log"', tmp_path).serve
    assert serve.artifact_cache == Path("cache")
    assert serve.request_log == Path("~/log").expanduser()


def test_seconds_accept_integers(tmp_path: Path) -> None:
    serve = load(BASE, {}, "drain-timeout = 5", tmp_path).serve
    assert serve.drain_timeout_s == 5.0


def test_api_key_is_never_shown() -> None:
    loaded = load({**BASE, "api-key": ["hush"]})
    assert "api-key=*** (command line)" in changed_lines(loaded)
    assert "hush" not in render_all(loaded)
    assert "port=3000 (default)\n" in render_all(loaded)


def test_values_are_shown_on_one_line_and_whole() -> None:
    flags = {**BASE, "default-prompt": ["a\nb\t"], "drain-timeout": ["1234.56789"]}
    lines = changed_lines(load(flags))
    assert "default-prompt=a\\nb\\t (command line)" in lines
    assert "drain-timeout=1234.56789 (command line)" in lines


def test_defaults_are_shown_as_what_they_come_to() -> None:
    text = render_all(load())
    for line in (
        "max-batch-tokens=16384 (default)",
        "tokenization-workers=auto (default)",
        "max-queue-tokens=none (default)",
        "cors-allow-origin=any (default)",
        "api-key=none (default)",
        "auto-truncate=true (default)",
    ):
        assert f"{line}\n" in text


@pytest.mark.parametrize("word", ["true", "json"])
def test_every_option_is_reported_where_no_model_is_named(word: str) -> None:
    loaded = load({"print-config": [word]}, {"INFINITY_DTYPE": "float32"})
    assert loaded.serve.models == ()
    names = [line.partition("=")[0] for line in render_all(loaded).splitlines()]
    assert names == [option.name for option in all_options()]
    assert "dtype=float32 (env INFINITY_DTYPE)\n" in render_all(loaded)
    (model,) = json.loads(render_json(loaded))["models"]
    assert model["model-id"] == {"value": "", "origin": "default"}
    assert model["dtype"]["value"] == "float32"


def test_report_for_programs() -> None:
    flags = {"model-id": ["a;b"], "max-batch-tokens": ["7"], "api-key": ["hush"]}
    flags |= {"cors-allow-origin": ["x://y"], "request-log": ["/log"]}
    report = json.loads(render_json(load(flags, {"INFINITY_PROT": "1", "PORT": "81"})))
    serve, models = report["serve"], report["models"]
    assert serve["port"] == {"value": 81, "origin": "env PORT"}
    assert serve["api-key"] == {"value": "***", "origin": "command line"}
    assert serve["cors-allow-origin"]["value"] == ["x://y"]
    assert serve["request-log"]["value"] == "/log"
    assert [model["model-id"]["value"] for model in models] == ["a", "b"]
    assert models[1]["max-batch-tokens"] == {"value": 7, "origin": "command line"}
    assert models[1]["revision"] == {"value": None, "origin": "default"}
    assert "did you mean INFINITY_PORT?" in report["warnings"][0]
    names = {option.name for option in all_options()}
    assert set(serve) | set(models[0]) == names


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
