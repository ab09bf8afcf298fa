"""Rows 1 to 19: what /embed takes as inputs and options, and what it refuses."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from edge_case import (
    EMBED,
    EMPTY,
    MAX_TOKENS,
    OPENAI,
    VOCAB_SIZE,
    WIDTH,
    EdgeCase,
    Refusal,
    answered,
    ask,
    assert_near,
    assert_refused,
    embed,
    has_unit_rows,
    invalid,
    refused,
)
from http_client import HttpClient
from http_metrics import read_metrics, series

TEST_IDS = [101, 3231, 102]
"""What the tokenizer makes of "test"."""
LONG_TEXT = "hello " * 598
"""600 tokens, the two special ones among them."""
TEXT = "What is Deep Learning?"


def input_cases() -> Iterator[EdgeCase]:
    """Every alternative of the rows."""
    yield from _forms()
    yield from _empty()
    yield from _sizes()
    yield from _wrong_types()
    yield from _options()
    yield from _dimensions()
    yield from _lengths()
    yield from _surrogates()


def _forms() -> Iterator[EdgeCase]:
    def equals_test(inputs: object, count: int) -> "EdgeCase":
        def check(client: HttpClient) -> None:
            rows = embed(client, inputs)
            assert rows.shape == (count, WIDTH)
            assert_near(rows, embed(client, "test"), atol=1e-6)

        return EdgeCase(name="", check=check)

    forms: Mapping[str, tuple[object, int]] = {
        "01_text": ("test", 1),
        "01_list_of_text": (["test"], 1),
        "01_ids": (TEST_IDS, 1),
        "01_list_of_ids": ([TEST_IDS], 1),
        "02_ids_and_text": ([TEST_IDS, "test"], 2),
    }
    for name, form in forms.items():
        yield replace(equals_test(*form), name=f"edge_{name}")


def _empty() -> Iterator[EdgeCase]:
    bare, first, second = (
        replace(EMPTY, has_item=False),
        replace(EMPTY, fragments=("`inputs` cannot be empty (item 0)",)),
        replace(EMPTY, fragments=("`inputs` cannot be empty (item 1)",)),
    )
    rows: Mapping[str, tuple[object, Refusal]] = {
        "03_text": ("", bare),
        "03_list": ([], bare),
        "04_list_of_text": ([""], first),
        "04_list_of_ids": ([[]], first),
        "04_second": (["a", ""], second),
    }
    for name, (inputs, refusal) in rows.items():
        yield refused(f"edge_{name}", {"inputs": inputs}, refusal)
    yield answered("edge_05_white_space", {"inputs": "   "}, has_unit_rows(1))
    yield answered("edge_05_nul", {"inputs": "\u0000"}, has_unit_rows(1))


def _sizes() -> Iterator[EdgeCase]:
    for count in (33, 128, 1024):
        yield answered(f"edge_06_{count}", {"inputs": ["a"] * count}, has_unit_rows(count))
    message = "batch size 1025 > maximum allowed batch size 1024"
    too_many = invalid(message, "--max-client-batch-size", code="batch_too_large")
    yield refused("edge_07_embed", {"inputs": ["a"] * 1025}, too_many)
    yield refused("edge_07_openai", {"input": ["a"] * 1025}, too_many, path=OPENAI)


def _wrong_types() -> Iterator[EdgeCase]:
    bodies = {"empty_object": b"{}", "null": b"null", "number": b"5"}
    for name, raw in bodies.items():
        yield refused(f"edge_08_{name}", raw, invalid())
    for name, value in {"number": 5, "null": None}.items():
        yield refused(f"edge_08_inputs_{name}", {"inputs": value}, invalid("`inputs`"))
    wrong_type: Mapping[str, tuple[object, str]] = {
        "float": ([1.5], "inputs[0]"),
        "bool": ([True], "inputs[0]"),
        "second_is_id": (["a", 1], "inputs[1]"),
        "second_is_text": ([1, "a"], "inputs[1]"),
    }
    for name, (inputs, place) in wrong_type.items():
        yield refused(f"edge_09_{name}", {"inputs": inputs}, invalid(place))
    no_id: Mapping[str, object] = {
        "negative": [-1],
        "vocabulary_size": [VOCAB_SIZE],
        "beyond_32_bits": [4294967296],
    }
    for name, inputs in no_id.items():
        yield refused(f"edge_09_{name}", {"inputs": inputs}, invalid("position 0"))
        code = invalid("position 0", code="invalid_token_id")
        yield refused(f"edge_09_{name}_code", {"input": inputs}, code, path=OPENAI)
    later = invalid("position 1", f"{VOCAB_SIZE}", "(item 1)")
    yield refused("edge_09_later", {"inputs": [[101], [101, VOCAB_SIZE, 102]]}, later)


def _options() -> Iterator[EdgeCase]:
    wrong: Mapping[str, Mapping[str, object]] = {
        "normalize_null": {"normalize": None},
        "direction_null": {"truncation_direction": None},
        "direction_middle": {"truncation_direction": "middle"},
        "dimensions_float": {"dimensions": 128.0},
        "dimensions_text": {"dimensions": "8"},
    }
    for name, option in wrong.items():
        field = f"`{next(iter(option))}`"
        yield refused(f"edge_10_{name}", {"inputs": "a", **option}, invalid(field))
    for key in ("truncate", "prompt_name", "dimensions"):
        yield answered(f"edge_11_{key}_null", {"inputs": "a", key: None}, has_unit_rows(1))
    unknown = {"inputs": "a", "never_heard_of": None, "Inputs": 5}
    yield answered("edge_11_unknown_keys", unknown, has_unit_rows(1))
    prompt = {"prompt_name": "nope"}
    yield refused("edge_15_embed", {"inputs": "a", **prompt}, invalid("no prompts"))
    code = invalid("no prompts", code="unknown_prompt")
    yield refused("edge_15_code", {"input": "a", **prompt}, code, path=OPENAI)


def _dimensions() -> Iterator[EdgeCase]:
    for number in (-1, 0, WIDTH + 1, 10000):
        for path in (EMBED, OPENAI):
            yield _impossible_dimensions(number, path)
    for number in (WIDTH, 1):
        body = {"inputs": ["test", TEXT], "dimensions": number}
        yield answered(f"edge_13_{number}", body, has_unit_rows(2, number))

    def raw_cut(client: HttpClient) -> None:
        raw = embed(client, TEXT, normalize=False)
        cut = embed(client, TEXT, normalize=False, dimensions=128)
        assert cut.shape == (1, 128)
        assert_near(cut, raw[:, :128], atol=1e-6)
        assert np.linalg.norm(cut) > 1.5

    yield EdgeCase(name="edge_14_raw_cut", check=raw_cut)


def _impossible_dimensions(number: int, path: str) -> EdgeCase:
    fragment = "be positive" if number < 1 else "be smaller than the maximum embedding dimension"
    refusal = invalid(f"`dimensions` should {fragment}", code="invalid_dimensions")

    def check(client: HttpClient) -> None:
        before = series(read_metrics(client), "te_batch_next_size_count")
        field = "input" if path == OPENAI else "inputs"
        assert_refused(client.post(path, {field: "a", "dimensions": number}), path, refusal)
        assert series(read_metrics(client), "te_batch_next_size_count") == before

    return EdgeCase(name=f"edge_12_{number}{path.replace('/', '_')}", check=check)


def _lengths() -> Iterator[EdgeCase]:
    long = {"inputs": LONG_TEXT}
    message = f"`inputs` must have less than {MAX_TOKENS} tokens. Given: 600"
    yield refused("edge_16_whole", {**long, "truncate": False}, invalid(message))
    yield answered("edge_16_cut", {**long, "truncate": True}, has_unit_rows(1))
    yield answered("edge_16_absent", long, has_unit_rows(1))

    def exactly(client: HttpClient) -> None:
        body = {"input": "hello " * (MAX_TOKENS - 2), "truncate": False}
        usage = ask(client, OPENAI, body)["usage"]
        assert usage == {"prompt_tokens": MAX_TOKENS, "total_tokens": MAX_TOKENS}

    yield EdgeCase(name="edge_17_exactly", check=exactly)
    one_more = {"inputs": "hello " * (MAX_TOKENS - 1), "truncate": False}
    yield refused("edge_17_one_more", one_more, invalid("Given: 257"))

    def cut_ids(client: HttpClient) -> None:
        ids = [101, *range(2000, 2298), 102]
        assert len(ids) == 300
        kept = [*ids[: MAX_TOKENS - 1], 102]
        cut = embed(client, ids, truncate=True)
        assert_near(cut, embed(client, kept, truncate=False), atol=1e-6)

    yield EdgeCase(name="edge_18_cut_ids", check=cut_ids)


def _surrogates() -> Iterator[EdgeCase]:
    one, second = b'{"inputs":"\\ud800"}', b'{"inputs":["a","\\ud800"]}'
    yield refused("edge_19_one", one, invalid("surrogate", has_item=False))
    yield refused("edge_19_second", second, invalid("surrogate", "(item 1)"))
    code = one.replace(b"inputs", b"input")
    yield refused("edge_19_code", code, invalid("surrogate", code="invalid_value"), path=OPENAI)
