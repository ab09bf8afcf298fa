"""Sequences and probabilities of generated requests against the `laya` package.

The packed graph is run eagerly here; tests/e2e/test_decisions.py holds a compiled one to the same.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decision_requests import generate_body
from eager_laya import EagerLaya
from infinity_v3.runtime.decisions.protocol import EncodedDecisions
from infinity_v3.runtime.errors import InferenceError
from laya_oracle import LayaOracle, OracleAnswer
from tiny_laya import LAYA_RECIPES, LayaRecipe, make_laya_checkpoint

REQUESTS_EACH = 64
RUN_EACH = int(os.environ.get("LAYA_REQUESTS_EACH", "8"))
"""Requests whose probabilities are compared; all of them in a run that has the time."""
MOST_TOKENS = 1500 if RUN_EACH < REQUESTS_EACH // 2 else 100_000
MAX_DIFFERENCE = 1e-5

Answers = dict[str, OracleAnswer]


@pytest.fixture(scope="module", params=LAYA_RECIPES, ids=lambda recipe: recipe.key)
def recipe(request: pytest.FixtureRequest) -> LayaRecipe:
    found: LayaRecipe = request.param
    return found


@pytest.fixture(scope="module")
def checkpoint(recipe: LayaRecipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_laya_checkpoint(tmp_path_factory.mktemp("laya") / recipe.key, recipe)


@pytest.fixture(scope="module")
def ours(checkpoint: Path) -> EagerLaya:
    return EagerLaya(checkpoint)


@pytest.fixture(scope="module")
def oracle(checkpoint: Path) -> LayaOracle:
    return LayaOracle(checkpoint)


def ask(oracle: LayaOracle, body: dict[str, Any], *, is_run: bool = True) -> Answers:
    """The oracle's answers; lengths as the product understands them.

    Raises:
        ValueError: the options do not fit.
    """
    longest = int(oracle.agent.cfg["max_len"])
    return oracle.answer(
        body["state"],
        body["questions"],
        max_len=min(body.get("max_len") or longest, longest),
        head_max_len=body.get("head_max_len"),
        is_run=is_run,
    )


def check_sequences(encoded: EncodedDecisions, expected: Answers) -> None:
    for place, wanted in zip(encoded.places, expected.values(), strict=True):
        sequence = encoded.sequences[place.sequence]
        assert tuple(sequence.input_ids.tolist()) == wanted.ids
        assert sequence.readout_positions is not None
        assert tuple(sequence.readout_positions.tolist()) == wanted.markers
        assert place.is_truncated == wanted.is_truncated
    assert encoded.num_input_tokens == sum(len(answer.ids) for answer in expected.values())


def test_generated_requests_become_the_same_sequences(
    recipe: LayaRecipe, ours: EagerLaya, oracle: LayaOracle
) -> None:
    kinds, num_answered, num_cut = set(), 0, 0
    for seed in range(REQUESTS_EACH):
        body = generate_body(1000 * recipe.seed + seed)
        try:
            expected = ask(oracle, body, is_run=False)
        except ValueError:
            with pytest.raises(InferenceError) as refusal:
                ours.encode(body)
            assert refusal.value.code == "max_length_exceeded"
            continue
        check_sequences(ours.encode(body), expected)
        num_cut += sum(answer.is_truncated for answer in expected.values())
        kinds |= {question["type"] for question in body["questions"].values()}
        num_answered += 1
    assert kinds == {"choice", "score", "noul"}
    assert num_answered >= 0.8 * REQUESTS_EACH, f"only {num_answered} were answered"
    assert num_cut > 0, "no state was cut"


def test_generated_requests_give_the_same_probabilities(
    recipe: LayaRecipe, ours: EagerLaya, oracle: LayaOracle
) -> None:
    worst, num_answered = 0.0, 0
    for seed in range(REQUESTS_EACH):
        body = generate_body(1000 * recipe.seed + seed)
        try:
            encoded = ours.encode(body)
        except InferenceError:
            continue
        if encoded.num_input_tokens > MOST_TOKENS:
            continue
        found, expected = ours.probabilities([encoded])[0], ask(oracle, body)
        for p, wanted in zip(found, expected.values(), strict=True):
            worst = max(worst, float(np.abs(np.subtract(p, wanted.probabilities)).max()))
        num_answered += 1
        if num_answered == RUN_EACH:
            break
    assert num_answered == RUN_EACH
    assert worst <= MAX_DIFFERENCE, f"largest difference {worst:.3g} over {num_answered} requests"


def test_a_request_says_the_same_alone_and_among_others(ours: EagerLaya) -> None:
    bodies = [generate_body(seed) for seed in range(500, 508)]
    encoded = [ours.encode({**body, "max_len": 200, "head_max_len": 150}) for body in bodies]
    together = ours.probabilities(encoded)
    backwards = ours.probabilities(encoded[::-1])[::-1]
    for request, batched, reversed_ in zip(encoded, together, backwards, strict=True):
        for alone, one, other in zip(
            ours.probabilities([request])[0], batched, reversed_, strict=True
        ):
            np.testing.assert_allclose(one, alone, atol=MAX_DIFFERENCE, rtol=0)
            np.testing.assert_allclose(other, alone, atol=MAX_DIFFERENCE, rtol=0)


def choice(criteria: dict[str, Any], instructions: str = "?") -> dict[str, Any]:
    question = {"type": "choice", "instructions": instructions, "criteria": criteria}
    return {"questions": {"q": question}}


CASES: dict[str, dict[str, Any]] = {
    "empty state": {"state": ""},
    "empty object": {"state": {}},
    "empty list": {"state": []},
    "numbers": {"state": {"a": [1e6, 1e16, -0.0, 123456789012345678901234567890, 0]}},
    "nested and not ASCII": {"state": {"ключ": {"größe": ["深", {"🙂": None}]}}},
    "mask in everything": {
        "state": "a [MASK] b",
        **choice({"x[MASK]": "[MASK]y", "z": None}, "[MASK]?"),
    },
    "keys in another order": choice({"b": "1", "a": "2", "C": "3"}),
    "26 options": choice({f"o{i}": None for i in range(26)}),
    "27 options": choice({f"o{i}": "" for i in range(27)}),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_become_the_same_sequences(
    name: str, recipe: LayaRecipe, ours: EagerLaya, oracle: LayaOracle
) -> None:
    body = {
        "state": "state",
        "questions": {"q": {"type": "noul", "instructions": "is it so?"}},
        **CASES[name],
    }
    encoded, expected = ours.encode(body), ask(oracle, body)
    assert [tuple(s.input_ids.tolist()) for s in encoded.sequences] == [
        answer.ids for answer in expected.values()
    ]
    for p, wanted in zip(ours.probabilities([encoded])[0], expected.values(), strict=True):
        np.testing.assert_allclose(p, wanted.probabilities, atol=MAX_DIFFERENCE, rtol=0)


def test_a_state_is_cut_from_the_first_token_that_does_not_fit(
    recipe: LayaRecipe, ours: EagerLaya, oracle: LayaOracle
) -> None:
    question = {"q": {"type": "noul", "instructions": "is it so?"}}
    for state in ("the " * 100, [{"text": "the " * 100}]):
        whole = ours.encode({"state": state, "questions": question, "max_len": 511})
        length = whole.sequences[0].num_tokens
        for max_len, is_cut in ((length, False), (length - 1, True)):
            body = {"state": state, "questions": question, "max_len": max_len}
            encoded, expected = ours.encode(body), ask(oracle, body)["q"]
            assert tuple(encoded.sequences[0].input_ids.tolist()) == expected.ids
            assert encoded.places[0].is_truncated == expected.is_truncated == is_cut


def test_missing_instructions_are_the_sentence_of_the_type(ours: EagerLaya) -> None:
    criteria = {"choice": {"a": None}, "score": ["a"], "noul": None}
    sentences = {
        "choice": "Which option applies to the state?",
        "score": "Which level describes the state?",
        "noul": "Is the statement true, or is the answer to the question yes?",
    }
    for kind, sentence in sentences.items():
        question = {"type": kind, "criteria": criteria[kind]}
        bodies = [
            {"state": "s", "questions": {"q": {**question, **instructions}}}
            for instructions in ({}, {"instructions": None}, {"instructions": sentence})
        ]
        absent, null, said = (ours.encode(body).sequences[0].input_ids.tolist() for body in bodies)
        assert absent == null == said


def test_head_max_len_is_held_to_its_bounds(ours: EagerLaya) -> None:
    body = {"state": "s", "questions": {"q": {"type": "noul"}}, "max_len": 64}
    for right in (16, 63):
        assert ours.encode({**body, "head_max_len": right}).num_input_tokens
    for wrong in (15, 64, 1000):
        with pytest.raises(InferenceError, match="head_max_len: expected 16 to 63"):
            ours.encode({**body, "head_max_len": wrong})


def test_the_server_reads_the_same_values_that_json_writes(ours: EagerLaya) -> None:
    body = generate_body(3)
    request = ours.request(json.loads(json.dumps(body)))
    assert replace(request) == ours.request(body)
