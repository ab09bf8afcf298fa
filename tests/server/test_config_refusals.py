"""Every wrong configuration ends with one sentence and exit code 2, before anything is opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infinity_v3.server import launch
from infinity_v3.server.cli import run


@dataclass(frozen=True, kw_only=True)
class Case:
    """One wrong configuration and the whole sentence about it; FILE stands for the TOML file.

    `flags` are separated by blanks.
    """

    message: str
    flags: str = "--model-id m"
    env: Mapping[str, str] = field(default_factory=dict)
    toml: str | None = None


CASES = (
    Case(
        message=(
            "--model-id is missing; give an artifact directory, a registry reference, a checkpoint "
            "or a hub id"
        ),
        flags="",
    ),
    Case(message="--modl-id: unknown option; did you mean --model-id?", flags="--modl-id x"),
    Case(
        message="--cpu-thread: unknown option; did you mean --cpu-threads-per-replica?",
        flags="--cpu-thread 2",
    ),
    Case(
        message="--hf-token: unknown option; did you mean --max-batch-tokens?",
        flags="--hf-token x --model-id m",
    ),
    Case(message="--uds-path: unknown option", flags="--uds-path /tmp/x --model-id m"),
    Case(message="--otlp-endpoint: unknown option", flags="--otlp-endpoint x --model-id m"),
    Case(message="--dense-path: unknown option", flags="--dense-path x --model-id m"),
    Case(message="--model-id: expected a value after it, found none", flags="--model-id"),
    Case(
        message="./artifact: expected options only; --model-id says what to serve",
        flags="--port 80 ./artifact stray",
    ),
    Case(message="--port x: expected an integer, found 'x'", flags="--model-id m --port x"),
    Case(
        message=("--port 65536: expected an integer of at least 0 and at most 65535, found 65536"),
        flags="--model-id m --port=65536",
    ),
    Case(
        message=("--port -1: expected an integer of at least 0 and at most 65535, found -1"),
        flags="--model-id m -p -1",
    ),
    Case(message="--port=: expected an integer, found ''", flags="--model-id m --port="),
    Case(
        message="--port is given 2 times: 80, 81; it takes one value, keep one",
        flags="--model-id m -p 80 --port=81",
    ),
    Case(
        message="--http2 is given 3 times: true, true, false; it takes one value, keep one",
        flags="--model-id m --http2 --http2 --http2=false",
    ),
    Case(
        message="--api-key is given 2 times; it takes one value, keep one",
        flags="--model-id m --api-key k --api-key k",
    ),
    Case(
        message="--port 80;81: expected an integer, found '80;81'",
        flags="--model-id m --port 80;81",
    ),
    Case(
        message=(
            "--max-batch-tokens 0: expected an integer of at least 1 and at most "
            "1099511627776, found 0"
        ),
        flags="--model-id m --max-batch-tokens 0",
    ),
    Case(
        message="--max-batch-tokens none: expected an integer, found 'none'",
        flags="--model-id m --max-batch-tokens none",
    ),
    Case(
        message="--max-batch-tokens 1.5: expected an integer, found '1.5'",
        flags="--model-id m --max-batch-tokens 1.5",
    ),
    Case(
        message=(
            "--max-batch-tokens 99999999999999999999: expected an integer of at least 1 "
            "and at most 1099511627776, found 99999999999999999999"
        ),
        flags="--model-id m --max-batch-tokens 99999999999999999999",
    ),
    Case(
        message=(
            "--dtype int4: expected one of auto, float32, float16, bfloat16, int8, found 'int4'"
        ),
        flags="--model-id m --dtype int4",
    ),
    Case(
        message="--torch-device gpu: expected one of auto, cpu, cuda, found 'gpu'",
        flags="--model-id m --torch-device gpu",
    ),
    Case(
        message=(
            "--pooling first: expected one of auto, cls, mean, max, mean-sqrt-len, "
            "weighted-mean, last-token, splade, found 'first'"
        ),
        flags="--model-id m --pooling first",
    ),
    Case(
        message="--http2 maybe: expected true or false, found 'maybe'",
        flags="--model-id m --http2=maybe",
    ),
    Case(message="--http2=: expected true or false, found ''", flags="--model-id m --http2="),
    Case(
        message="--auto-truncate none: expected true or false, found 'none'",
        flags="--model-id m --auto-truncate none",
    ),
    Case(
        message="--drain-timeout nan: expected 0 to 86400 seconds, found nan",
        flags="--model-id m --drain-timeout nan",
    ),
    Case(
        message="--drain-timeout -1: expected 0 to 86400 seconds, found -1",
        flags="--model-id m --drain-timeout -1",
    ),
    Case(
        message="--body-read-timeout 0: expected more than 0 to 86400 seconds, found 0",
        flags="--model-id m --body-read-timeout 0",
    ),
    Case(
        message=(
            "--api-key ***: expected one or more printable ASCII characters, as HTTP "
            "headers carry, no blank at the ends"
        ),
        flags="--model-id m --api-key=",
    ),
    Case(
        message=(
            "--api-key ***: expected one or more printable ASCII characters, as HTTP "
            "headers carry, no blank at the ends"
        ),
        flags="--model-id m --api-key=é",
    ),
    Case(
        message=(
            "--cors-allow-origin https://a/b: expected scheme://host or "
            "scheme://host:port, as browsers send it, without a path; or '*'"
        ),
        flags="--model-id m --cors-allow-origin https://a/b",
    ),
    Case(
        message="--tokenization-workers none: expected an integer, found 'none'",
        flags="--model-id m --tokenization-workers none",
    ),
    Case(
        message=("--log-level loud: expected one of error, warning, info, debug, found 'loud'"),
        flags="--model-id m --log-level loud",
    ),
    Case(
        message="--request-log=: expected a path, found an empty value",
        flags="--model-id m --request-log=",
    ),
    Case(
        message="--print-config yaml: expected true, false or json, found 'yaml'",
        flags="--model-id m --print-config=yaml",
    ),
    Case(
        message="--config=: expected a path, found an empty value", flags="--model-id m --config="
    ),
    Case(
        message="--config /dev/zero: larger than 1048576 bytes, so no TOML file",
        flags="--model-id m --config /dev/zero",
    ),
    Case(
        message=("--config /nonexistent.toml: the file cannot be read: No such file or directory"),
        flags="--model-id m --config /nonexistent.toml",
    ),
    Case(
        message=(
            "--served-model-name=: expected one or more characters, no control characters"
            " among them"
        ),
        flags="--model-id m --served-model-name=",
    ),
    Case(
        message=(
            "--hostname 1.2.3.999 (command line): expected an IPv4 or IPv6 address or a host name"
        ),
        flags="--model-id m --hostname 1.2.3.999",
    ),
    Case(
        message=("--hostname a/b (command line): expected an IPv4 or IPv6 address or a host name"),
        flags="--model-id m --hostname a/b",
    ),
    Case(
        message="--device-id x: expected an integer, found 'x'", flags="--model-id m --device-id x"
    ),
    Case(
        message=("--device-id -1: expected an integer of at least 0 and at most 9999, found -1"),
        flags="--model-id m --device-id -1",
    ),
    Case(
        message="--device-id 0,1: expected an integer, found '0,1'",
        flags="--model-id m --device-id 0,1",
    ),
    Case(
        message="--backend-device-ids 0,0: expected every device once, found 0 twice",
        flags="--model-id m --backend-device-ids 0,0",
    ),
    Case(
        message=(
            "--backend-device-ids 0,,1: expected 'auto' or ordinals such as 0,1, found '0,,1'"
        ),
        flags="--model-id m --backend-device-ids 0,,1",
    ),
    Case(
        message=("--backend-device-ids 0,a: expected 'auto' or ordinals such as 0,1, found '0,a'"),
        flags="--model-id m --backend-device-ids 0,a",
    ),
    Case(
        message=("--backend-device-ids all: expected 'auto' or ordinals such as 0,1, found 'all'"),
        flags="--model-id m --backend-device-ids all",
    ),
    Case(
        message=(
            "--device-id (command line) and --backend-device-ids (command line) exclude "
            "each other; drop one"
        ),
        flags="--model-id m --device-id 0 --backend-device-ids 0,1",
    ),
    Case(
        message=(
            "--device-id 0 (command line): asks for a GPU, but --torch-device cpu "
            "(command line); drop one"
        ),
        flags="--model-id m --device-id 0 --torch-device cpu",
    ),
    Case(
        message=(
            "--backend-device-ids auto (command line): asks for a GPU, but --torch-device"
            " cpu (env INFINITY_TORCH_DEVICE); drop one"
        ),
        flags="--model-id m --backend-device-ids auto",
        env={"INFINITY_TORCH_DEVICE": "cpu"},
    ),
    Case(
        message=(
            "--enable-fp8-dynamic true (command line): asks for a GPU, but --torch-device"
            " cpu (command line); drop one"
        ),
        flags="--model-id m --enable-fp8-dynamic --torch-device cpu",
    ),
    Case(
        message=(
            "--dtype has 3 values (command line) for 2 models; give one value, or one per"
            " --model-id"
        ),
        flags="--model-id a;b --dtype auto;auto;auto",
    ),
    Case(
        message=(
            "--dtype has 2 values (command line) for 1 model; give one value, or one per --model-id"
        ),
        flags="--model-id m --dtype auto;auto",
    ),
    Case(
        message=(
            "--model-id a;;b: expected a value on both sides of every ';', found an empty element"
        ),
        flags="--model-id a;;b",
    ),
    Case(
        message=(
            "--model-id a;: expected a value on both sides of every ';', found an empty element"
        ),
        flags="--model-id a; --dtype auto",
    ),
    Case(
        message=(
            "--default-prompt x;;y: expected a value on both sides of every ';', found an"
            " empty element"
        ),
        flags="--model-id a;b;c --default-prompt x;;y",
    ),
    Case(
        message=(
            "INFINITY_REVISION=x;y;: expected a value on both sides of every ';', found "
            "an empty element"
        ),
        flags="--model-id a;b;c",
        env={"INFINITY_REVISION": "x;y;"},
    ),
    Case(
        message=(
            "--device-id (command line) and --backend-device-ids (command line) exclude "
            "each other for model #2 (b); drop one"
        ),
        flags="--model-id a;b --device-id 0;1 --backend-device-ids none;2",
    ),
    Case(
        message=(
            "--default-prompt (command line) and --default-prompt-name (env "
            "INFINITY_DEFAULT_PROMPT_NAME) exclude each other; drop one"
        ),
        flags="--model-id m --default-prompt x",
        env={"INFINITY_DEFAULT_PROMPT_NAME": "y"},
    ),
    Case(
        message=(
            "--served-model-name x: given to two models, #1 (command line) and #2 "
            "(command line); every model needs its own name"
        ),
        flags="--model-id a;b --served-model-name x",
    ),
    Case(
        message=(
            "--prometheus-port 81 (command line): the same as --port (command line); "
            "choose another, or 0 for no metrics listener"
        ),
        flags="--model-id m --port 81 --prometheus-port 81",
    ),
    Case(
        message=(
            "--max-sequence-length 9 (command line): a batch holds only "
            "--max-batch-tokens 8 (command line); lower it or raise the other"
        ),
        flags="--model-id m --max-sequence-length 9 --max-batch-tokens 8",
    ),
    Case(
        message="INFINITY_PORT=1.5: expected an integer, found '1.5'", env={"INFINITY_PORT": "1.5"}
    ),
    Case(message="PORT=x: expected an integer, found 'x'", env={"PORT": "x"}),
    Case(message="AIP_HTTP_PORT=x: expected an integer, found 'x'", env={"AIP_HTTP_PORT": "x"}),
    Case(
        message="MAX_SEQUENCE_LENGTH=x: expected an integer, found 'x'",
        env={"MAX_SEQUENCE_LENGTH": "x"},
    ),
    Case(
        message=(
            "INFINITY_PORT=tcp://10.0.0.1:80: expected an integer; Kubernetes sets this "
            "variable for a Service of that name: set enableServiceLinks: false, or "
            "rename the Service"
        ),
        env={"INFINITY_PORT": "tcp://10.0.0.1:80"},
    ),
    Case(
        message=(
            "INFINITY_PROMETHEUS_PORT=tcp://10.0.0.1:80: expected an integer; Kubernetes "
            "sets this variable for a Service of that name: set enableServiceLinks: "
            "false, or rename the Service"
        ),
        env={"INFINITY_PROMETHEUS_PORT": "tcp://10.0.0.1:80"},
    ),
    Case(
        message=("INFINITY_API_KEY is set but empty; give a key, or unset it to serve without one"),
        env={"INFINITY_API_KEY": ""},
    ),
    Case(
        message="INFINITY_HTTP2=yes: expected true or false, found 'yes'",
        env={"INFINITY_HTTP2": "yes"},
    ),
    Case(message="FILE: top level prot: unknown key; did you mean port?", toml="prot = 1"),
    Case(
        message=("FILE: top level max_batch_tokens: unknown key; did you mean max-batch-tokens?"),
        toml="max_batch_tokens = 1",
    ),
    Case(message="FILE: top level zzz: unknown key", toml="zzz = 1"),
    Case(
        message="FILE: top level server: unknown table; did you mean serve?",
        toml="[server]\nport = 1",
    ),
    Case(message="FILE: [serve] prot: unknown key; did you mean port?", toml="[serve]\nprot = 1"),
    Case(
        message="FILE: [serve] config: not allowed inside a configuration file",
        toml="[serve]\nconfig = 'x'",
    ),
    Case(message="FILE: [serve] cli: unknown table", toml="[serve.cli]\nport = 1"),
    Case(message="FILE: top level cli: unknown key", toml="cli = 1"),
    Case(message="FILE: top level port: expected an integer, found a string", toml="port = '1'"),
    Case(message="FILE: top level port: expected an integer, found a boolean", toml="port = true"),
    Case(message="FILE: top level port: expected an integer, found a float", toml="port = 1.0"),
    Case(message="FILE: top level http2: expected a boolean, found an integer", toml="http2 = 1"),
    Case(
        message="FILE: top level drain-timeout: expected a float, found a string",
        toml="drain-timeout = '1'",
    ),
    Case(message="FILE: top level port: expected one value, found an array", toml="port = [1]"),
    Case(message="FILE: top level dtype: expected a string, found an integer", toml="dtype = 1"),
    Case(
        message="FILE: top level max-batch-tokens: expected an integer, found a string",
        toml="max-batch-tokens = 'none'",
    ),
    Case(
        message=(
            "FILE: top level tokenization-workers: expected an integer or \"auto\", found 'many'"
        ),
        toml="tokenization-workers = 'many'",
    ),
    Case(
        message=(
            'FILE: top level backend-device-ids: expected a string such as "0,1", found an integer'
        ),
        toml="backend-device-ids = [0, 1]",
    ),
    Case(
        message="FILE: top level artifact-cache: expected a string, found an integer",
        toml="artifact-cache = 1",
    ),
    Case(
        message=("FILE: top level print-config: expected a boolean or \"json\", found 'yaml'"),
        toml="print-config = 'yaml'",
    ),
    Case(
        message="FILE: top level cors-allow-origin: expected an array, found a string",
        toml="cors-allow-origin = 'x'",
    ),
    Case(
        message=(
            "FILE: top level cors-allow-origin: expected at least one value, found an empty array"
        ),
        toml="cors-allow-origin = []",
    ),
    Case(
        message=(
            "FILE: top level api-key: expected one or more printable ASCII characters, as"
            " HTTP headers carry, no blank at the ends"
        ),
        toml="api-key = ''",
    ),
    Case(
        message="FILE: top level api-key: expected a string, found an integer", toml="api-key = 1"
    ),
    Case(
        message="FILE: top level request-log: expected a string, found a date",
        toml="request-log = 1979-05-27",
    ),
    Case(
        message=("FILE: top level model-id: expected at least one value, found an empty array"),
        flags="",
        toml="model-id = []",
    ),
    Case(
        message="FILE: [[model]] #1: model-id is missing; every [[model]] needs one",
        flags="",
        toml="[[model]]\ndtype = 'auto'",
    ),
    Case(
        message="FILE: [[model]] #1 port: not a per-model option; move it to [serve]",
        flags="",
        toml="[[model]]\nmodel-id = 'a'\nport = 1",
    ),
    Case(
        message="FILE: [[model]] #1 prot: unknown key",
        flags="",
        toml="[[model]]\nmodel-id = 'a'\nprot = 1",
    ),
    Case(
        message=("FILE: [[model]] #1 served-name: unknown key; did you mean served-model-name?"),
        flags="",
        toml="[[model]]\nmodel-id = 'a'\nserved-name = 'x'",
    ),
    Case(
        message="FILE: [[model]] #1 model-id: expected one value, found an array",
        flags="",
        toml="[[model]]\nmodel-id = ['a']",
    ),
    Case(
        message=("model-id: given both in FILE top level and in [[model]] tables; keep one"),
        flags="",
        toml="model-id = 'b'\n[[model]]\nmodel-id = 'a'",
    ),
    Case(
        message=(
            "dtype: an array in FILE top level cannot be combined with [[model]] tables; "
            "put one value into each table"
        ),
        flags="",
        toml="dtype = ['auto']\n[[model]]\nmodel-id = 'a'",
    ),
    Case(
        message="FILE: model: expected tables [[model]], found a table",
        flags="",
        toml="[model]\nmodel-id = 'a'",
    ),
    Case(
        message="FILE: top level models: unknown table; did you mean model?",
        flags="",
        toml="[[models]]\nmodel-id = 'a'",
    ),
    Case(
        message="FILE: model: expected tables [[model]], found an integer",
        flags="",
        toml="model = 1",
    ),
    Case(
        message=(
            "--default-prompt (FILE [[model]] #1) and --default-prompt-name (FILE "
            "[serve]) exclude each other; drop one"
        ),
        flags="",
        toml=(
            "[[model]]\nmodel-id = 'a'\ndefault-prompt = 'x'\n[serve]\ndefault-prompt-name = 'y'"
        ),
    ),
    Case(
        message=(
            "--served-model-name x: given to two models, #1 (FILE [[model]] #1) and #2 "
            "(FILE [[model]] #2); every model needs its own name"
        ),
        flags="",
        toml=(
            "[[model]]\n"
            "model-id = 'a'\n"
            "served-model-name = 'x'\n"
            "[[model]]\n"
            "model-id = 'b'\n"
            "served-model-name = 'x'"
        ),
    ),
    Case(
        message=(
            "--dtype has 2 values (command line) for 1 model; give one value, or one per --model-id"
        ),
        flags="--dtype auto;auto",
        toml="[[model]]\nmodel-id = 'a'",
    ),
    Case(message="FILE: serve: expected a table [serve], found an integer", toml="serve = 1"),
    Case(
        message="FILE: serve: expected a table [serve], found an array", toml="[[serve]]\nport = 1"
    ),
)


@pytest.fixture
def _nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(_: object) -> int:
        raise AssertionError("the configuration was accepted")

    monkeypatch.setattr(launch, "serve", serve)


@pytest.mark.usefixtures("_nothing_is_served")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.message[:60])
def test_one_sentence(case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = case.flags.split()
    file = tmp_path / "serve.toml"
    if case.toml is not None:
        file.write_text(case.toml, encoding="utf-8")
        arguments += ["--config", str(file)]
    code = run(arguments, case.env)
    printed = capsys.readouterr()
    assert printed.err == f"error: {case.message.replace('FILE', str(file))}\n"
    assert (code, printed.out) == (2, "")


@pytest.mark.usefixtures("_nothing_is_served")
@pytest.mark.parametrize(
    "content", [b"x = ", b"port = 1\nport = 2", b"\xff", b"a = " + b"[" * 9999]
)
def test_a_file_that_is_not_toml(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.toml"
    file.write_bytes(content)
    assert run(["--config", str(file)], {}) == 2
    line = capsys.readouterr().err
    assert line.startswith(
        (f"error: {file}: not a TOML file: ", f"error: {file}: nested too deeply")
    )
    assert line.count("\n") == 1
