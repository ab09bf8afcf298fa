"""`mteb` evaluates this server and the reference, sentence-transformers, on one small STS task.

Its public tasks are downloaded; this one is made here, of sentences that share more or fewer words.
"""

import random
from collections.abc import Iterable, Mapping, Sequence

import mteb
import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from mteb.abstasks.sts import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ModelMeta
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from client_kit import ServerUrl, ask, counted
from compiled import minilm_checkpoint

NUM_PAIRS = 200
TEXT = (
    "river mountain garden engine violin winter kitchen letter doctor ocean castle teacher bread "
    "thunder market forest pencil bridge candle soldier window planet basket dragon lawyer harbour"
)


def make_pairs() -> Dataset:
    """Pairs of ten words; the score is how many of them both have, halved: 0 to 5."""
    source = random.Random(7)
    rows = []
    for _ in range(NUM_PAIRS):
        words = source.sample(TEXT.split(), 20)
        shared = source.randint(0, 10)
        other = [*words[:shared], *words[10 : 20 - shared]]
        source.shuffle(other)
        rows.append((" ".join(words[:10]), " ".join(other), shared / 2))
    names = ("sentence1", "sentence2", "score")
    return Dataset.from_dict(dict(zip(names, zip(*rows, strict=True), strict=True)))


class SharedWords(AbsTaskSTS):  # type: ignore[misc]  # untyped where mteb is not installed
    """The task; its data are here already."""

    metadata = TaskMetadata(
        name="SharedWords",
        description="Sentences that share words.",
        dataset={"path": "local", "revision": "1"},
        type="STS",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="cosine_spearman",
    )

    def load_data(self, *_given: object, **_options: object) -> None:
        """Take the pairs instead of a download."""
        self.dataset = DatasetDict({"test": make_pairs()})
        self.data_loaded = True


class Served(AbsEncoder):  # type: ignore[misc]  # as above
    """A server's `/v1/embeddings` as a model of mteb."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.mteb_model_meta = ModelMeta.create_empty({"name": "served/model"})

    def encode(
        self, inputs: Iterable[Mapping[str, Sequence[str]]], **_given: object
    ) -> NDArray[np.float32]:
        """Vectors of all texts, (B, D) float32."""
        rows: list[Sequence[float]] = []
        for batch in inputs:
            reply = ask(f"{self.url}/v1/embeddings", {"input": list(batch["text"])})
            rows += [entry["embedding"] for entry in reply["data"]]
        return np.array(rows, dtype=np.float32)


def score(model: AbsEncoder | SentenceTransformer) -> float:
    result = mteb.evaluate(model, SharedWords(), cache=None, show_progress_bar=False)
    return float(result.task_results[0].get_score())


def test_the_score_is_the_references(server: ServerUrl) -> None:
    reference = score(SentenceTransformer(str(minilm_checkpoint()), device="cpu"))
    url = server("embedding")
    with counted(url, "te_embed_success"):
        found = score(Served(url))
    assert 0.5 < reference < 1.0
    assert found == pytest.approx(reference, abs=0.001)
