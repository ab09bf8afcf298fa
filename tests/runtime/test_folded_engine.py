"""Folded batches on a compiled causal model give the numbers of plain ones."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from compiled import CompiledArtifacts
from engine_calls import OpenedEngine, assert_near, assert_tokens_near, opened_engine
from infinity_v3.runtime.batch import ROWS_INPUT, EncodedText
from infinity_v3.runtime.fold import fold, pack_folded
from tiny_artifacts import Recipe, make_artifact

TOLERANCE = 1e-5
CAUSAL = Recipe(key="tiny-qwen3-embedding", family="qwen3")
RNG = np.random.default_rng(3)
QUERY, OTHER = RNG.integers(5, 200, 40), RNG.integers(5, 200, 25)


def tails(*lengths: int) -> list[NDArray[np.int64]]:
    return [RNG.integers(5, 200, length) for length in lengths]


BATCHES: Mapping[str, Sequence[NDArray[np.int64]]] = {
    "one": [QUERY],
    "one token": [QUERY[:1]],
    "nothing shared": tails(7, 1, 30),
    "a query and its documents": [np.concatenate([QUERY, tail]) for tail in tails(1, 9, 30, 2)],
    "copies": [QUERY] * 3,
    "copies of one token": [QUERY[:1]] * 3,
    "ever longer": [QUERY[:length] for length in (1, 2, 17, 40)],
    "queries side by side": [
        np.concatenate([prefix, tail]) for prefix in (QUERY, OTHER) for tail in tails(4, 20, 11)
    ],
    "prefixes within prefixes": [
        np.concatenate([QUERY[:cut], tail])
        for cut, tail in zip((40, 20, 33, 20, 5), tails(8, 8, 1, 3, 30), strict=True)
    ],
}


@pytest.fixture(scope="module")
def causal(compiled_artifact: CompiledArtifacts) -> Iterator[OpenedEngine]:
    with opened_engine(make_artifact(compiled_artifact, CAUSAL).artifact) as engine:
        yield engine


def run_folded(
    opened: OpenedEngine, texts: Sequence[NDArray[np.int64]]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Pooled vectors and token matrices, in the order of the texts."""
    found = fold(texts)
    encoded = [EncodedText(input_ids=ids) for ids in texts]
    batch = pack_folded(
        encoded, found, position_offset=opened.artifact.manifest.model.position_offset
    )
    outputs = opened.engine.run(batch, opened.output_names).tensors
    matrices = np.split(outputs["hidden"], batch.cu_seqlens[1:-1])
    places = np.argsort(found.order)
    return outputs["pooled"][places], [matrices[place] for place in places]


def test_causal_models_can_fold(causal: OpenedEngine) -> None:
    assert ROWS_INPUT in {spec.name for spec in causal.engine.graph.inputs}


@pytest.mark.parametrize("name", BATCHES)
def test_folded_numbers_are_the_plain_ones(causal: OpenedEngine, name: str) -> None:
    texts = BATCHES[name]
    plain = causal.run(texts)
    pooled, matrices = run_folded(causal, texts)
    assert_near(pooled, plain["pooled"], atol=TOLERANCE, what="pooled")
    assert_tokens_near(np.concatenate(matrices), plain["hidden"], rtol=TOLERANCE, what="hidden")
