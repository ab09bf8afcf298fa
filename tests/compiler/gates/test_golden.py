"""Files of golden requests, and when two answers agree."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.compiler.gates.golden_answers import Tolerance, disagreement, tolerance_of
from infinity_v3.compiler.gates.golden_file import (
    GoldenRequest,
    Request,
    read_golden,
    read_requests,
    write_golden,
)

Json = Any


def test_a_file_is_read_line_by_line() -> None:
    data = (
        b'{"path": "/embed", "body": {"inputs": "a"}, "response": [[0.5, 1.0]]}\n'
        b"\n"
        b'{"path": "/predict", "body": null, "response": {}, "tolerance": 0}\n'
    )
    assert read_golden(data, "g.jsonl") == (
        GoldenRequest(
            request=Request(line=1, path="/embed", body={"inputs": "a"}), response=[[0.5, 1.0]]
        ),
        GoldenRequest(
            request=Request(line=3, path="/predict", body=None, tolerance=0.0), response={}
        ),
    )


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e6, 1e6) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(DOCUMENTS, DOCUMENTS, st.none() | st.floats(0, 1))
def test_what_is_written_is_read_again(body: Json, response: Json, tolerance: float | None) -> None:
    golden = (
        GoldenRequest(
            request=Request(line=1, path="/a", body=body, tolerance=tolerance), response=response
        ),
    )
    assert read_golden(write_golden(golden), "g") == golden


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[]", "expected an object, found an array"),
        ("{", "expected JSON, found an error at line 1 column 2"),
        ('{"path": "/a"}', "body: missing key"),
        ('{"path": "a", "body": 1}', 'path: expected the path of a route, such as "/embed", found'),
        ('{"path": "/a b", "body": 1}', "path: expected the path of a route"),
        ('{"path": 1, "body": 1}', "path: expected the path of a route"),
        ('{"path": "/a", "body": 1, "tolerence": 1}', "tolerence: unknown key; did you mean toler"),
        ('{"path": "/a", "body": 1, "response": 1}', "response: unknown key; known here: path, b"),
        ('{"path": "/a", "body": 1, "tolerance": -1}', "tolerance: expected a number from 0, fou"),
        ('{"path": "/a", "body": 1, "tolerance": true}', "tolerance: expected a number from 0"),
        ('{"path": "/a", "path": "/b", "body": 1}', "path: duplicate key"),
    ],
)
def test_requests_are_refused_by_line_and_key(line: str, sentence: str) -> None:
    data = f'{{"path": "/a", "body": 1}}\n{line}\n'.encode()
    with pytest.raises(RefusedError, match=re.escape(f"asked.jsonl: line 2: {sentence}")):
        read_requests(data, "asked.jsonl")


def test_a_refused_request_names_its_file(tmp_path: Path) -> None:
    asked = tmp_path / "asked.jsonl"
    asked.write_text('{"path": "/a"}\n')
    program = (sys.executable, "-m", "infinity_v3.compiler.cli", "registry", "record-golden")
    done = subprocess.run(
        [*program, "one", "--requests", asked, "--out", tmp_path / "out.jsonl"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == f"error: {asked}: line 1: body: missing key"


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_an_empty_file_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError, match=r"^g: expected at least one request, found an empty"):
        read_golden(data, "g")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([[0.6, 0.8]], [[0.6, 0.8]]),
        ([[0.6, 0.8]], [[0.62, 0.785]]),  # cosine 0.9998
        ([[3.0, 4.0]], [[0.6, 0.8]]),  # the length of a vector is not its direction
        ([[0.0, 0.0]], [[0.0, 0.0]]),
        ({"score": 0.71}, {"score": 0.7}),
        ({"score": 1}, {"score": 1.0}),
        ({"a": [1, 2], "b": "x"}, {"b": "x", "a": [1, 2]}),
        # Every reply has a name and a time of its own.
        ({"id": "a-1", "created": 7, "n": 1}, {"id": "a-2", "created": 8, "n": 1}),
        # Near ties may change places.
        (
            [{"index": 1, "score": 0.5}, {"index": 0, "score": 0.49}],
            [{"index": 0, "score": 0.5}, {"index": 1, "score": 0.49}],
        ),
        (
            [[{"label": "b", "score": 0.5}, {"label": "a", "score": 0.49}]],
            [[{"label": "a", "score": 0.5}, {"label": "b", "score": 0.49}]],
        ),
    ],
)
def test_answers_agree(found: Json, expected: Json) -> None:
    assert disagreement(found, expected, Tolerance()) is None


@pytest.mark.parametrize(
    ("found", "expected", "sentence"),
    [
        ([[0.8, 0.6]], [[0.6, 0.8]], "[0]: expected >= 0.999, found cosine 0.960000"),
        ([[0.6, 0.8, 0.0]], [[0.6, 0.8]], "[0]: expected 2, found 3 numbers"),
        ([[0.0, 0.0]], [[0.6, 0.8]], "[0]: expected >= 0.999, found cosine 0.000000"),
        ([[0.6, 0.8]] * 2, [[0.6, 0.8]], "expected 1, found 2 items"),
        ({"score": 0.73}, {"score": 0.7}, "score: expected 0.7 +- 0.02, found 0.73"),
        # Whole numbers are counts and ids.
        ({"n": 8}, {"n": 7}, "n: expected 7, found 8"),
        ([{"id": 7}], [{"id": 8}], "[0].id: expected 8, found 7"),
        ([101, 7, 102], [101, 8, 102], "[1]: expected 8, found 7"),
        ({"label": "b"}, {"label": "a"}, "label: expected 'a', found 'b'"),
        ({"a": 1}, {"b": 1}, "expected b, found keys a"),
        ({"a": True}, {"a": 1}, "a: expected 1, found true"),
        ({"a": None}, {"a": []}, "a: expected an array, found null"),
        (
            [{"label": "b", "score": 0.9}, {"label": "c", "score": 0.1}],
            [{"label": "a", "score": 0.9}, {"label": "b", "score": 0.1}],
            "[0].label: expected 'a', found 'b'",
        ),
    ],
)
def test_answers_differ(found: Json, expected: Json, sentence: str) -> None:
    assert disagreement(found, expected, Tolerance()) == sentence


def test_a_tolerance_of_its_own_is_of_vectors_and_numbers() -> None:
    assert disagreement([[0.8, 0.6]], [[0.6, 0.8]], tolerance_of(0.05)) is None
    assert disagreement({"s": 0.74}, {"s": 0.7}, tolerance_of(0.05)) is None
    assert disagreement({"s": 0.7000001}, {"s": 0.7}, tolerance_of(0.0)) is not None
    assert disagreement([[0.6, 0.8]], [[0.6, 0.8]], tolerance_of(1e-12)) is None


@given(DOCUMENTS)
def test_every_answer_agrees_with_itself(document: Json) -> None:
    assert disagreement(document, document, tolerance_of(1e-9)) is None


@given(DOCUMENTS, DOCUMENTS)
def test_any_two_answers_are_compared_both_ways(left: Json, right: Json) -> None:
    one, other = (disagreement(*pair, Tolerance()) for pair in ((left, right), (right, left)))
    assert (one is None) == (other is None)
