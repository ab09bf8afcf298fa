"""`infinity-compile catalog`: the table, one checkpoint's settings, JSON, and what is not found."""

import json
import shlex
import subprocess
import sys

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.catalog_command import (
    compile_command,
    curl_command,
    run_catalog,
    serve_command,
)
from infinity_v3.compiler.cli import main
from infinity_v3.model_specs.catalog import read_catalog

CATALOG = read_catalog()
HEAVY = ("torch", "transformers", "numpy", "huggingface_hub", "safetensors", "tokenizers")


def output(capsys: pytest.CaptureFixture[str], query: str, *, is_json: bool = False) -> str:
    run_catalog(query, is_json=is_json)
    return capsys.readouterr().out


def test_table_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    header, *rows, closing = output(capsys, "").splitlines()
    assert header.split() == ["id", "family", "task", "max", "length", "pooling"]
    assert [row.split()[0] for row in rows] == [entry.id for entry in CATALOG]
    assert closing.startswith(f"{len(CATALOG)} checkpoints; ")
    assert not any(row.endswith(" ") for row in rows)


def test_table_of_what_the_words_find(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "QWEN3 reranker").splitlines()
    assert shown[1].split() == ["Qwen/Qwen3-Reranker-0.6B", "qwen3", "reranker", "40960"]
    assert all("qwen3" in row.lower() and "reranker" in row for row in shown[1:-1])
    assert shown[-1].startswith(f"{len(shown) - 2} checkpoints; ")


def test_one_row_is_no_entry(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "splade distilbert")
    assert shown.splitlines()[1].split()[0] == "naver/splade_v2_distil"
    assert "1 checkpoint; " in shown


def test_an_id_shows_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "qwen/qwen3-reranker-0.6b")
    assert shown.startswith("Qwen/Qwen3-Reranker-0.6B\n  family       qwen3\n")
    assert "--task reranker --yes-token yes --no-token no" in shown
    assert "  serve        infinity_v3 --model-id ./Qwen3-Reranker-0.6B" in shown
    assert "curl http://127.0.0.1:3000/rerank -H 'content-type: application/json' -d " in shown
    assert '  config.json  model_type: "qwen3"\n               architectures: [' in shown
    assert "  source       https://" in shown
    assert "\n  pooling" not in shown


def test_an_id_shows_pooling_and_prompts(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "BAAI/bge-small-en-v1.5")
    assert "  pooling      cls, normalised\n" in shown
    assert "  max length   512 tokens\n" in shown
    assert '  prompts      query: "Represent this sentence for searching' in shown


@pytest.mark.parametrize("query", ["", "qwen3 reranker", "BAAI/bge-m3"])
def test_json_holds_whole_entries(capsys: pytest.CaptureFixture[str], query: str) -> None:
    text = output(capsys, query, is_json=True)
    assert text.count("\n") == 1
    models = json.loads(text)["models"]
    by_id = {entry.id: entry for entry in CATALOG}
    assert models
    for model in models:
        entry = by_id[model["id"]]
        assert model["request"]["body"] == entry.request.body
        assert model["commands"]["compile"] == compile_command(entry)
        assert model["source"] == list(entry.sources)


def test_command_lines_survive_a_shell() -> None:
    for entry in CATALOG:
        compiling, serving, curl = (
            shlex.split(write(entry)) for write in (compile_command, serve_command, curl_command)
        )
        assert compiling[:5] == ["infinity-compile", "model", entry.id, "--out", entry.name]
        assert serving[:3] == ["infinity_v3", "--model-id", f"./{entry.name}"]
        assert json.loads(curl[-1]) == entry.request.body


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("bge-smal-en-v1.5", "; nearest: BAAI/bge-small-en-v1.5"),
        ("rerankerr", "; did you mean reranker?"),
        ("zzzzzz", "in the catalog; see infinity-compile catalog"),
    ],
)
def test_nothing_found(query: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_catalog(query, is_json=False)
    assert hint in str(caught.value)
    assert repr(query) in str(caught.value)


def test_nothing_found_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["infinity-compile", "catalog", "zzz", "zzz"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: 'zzz zzz' is no id")


def test_the_program_takes_words_and_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from infinity_v3.compiler.cli import main\n"
        "sys.argv = ['infinity-compile', 'catalog', 'splade', 'bert', '--json']\n"
        "try:\n    main()\n"
        f"finally:\n    sys.stderr.write(','.join(m for m in {HEAVY!r} if m in sys.modules))\n"
    )
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(result.stdout)["models"]
    assert result.stderr == ""
