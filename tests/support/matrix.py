"""Every family under every head: how a cell's checkpoint is made, served and compared.

A cell goes the whole way: checkpoint, artifact, HTTP. What it is compared with comes from
`family_oracles`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

import family_oracles as oracles
from compiled import CompiledArtifacts
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler.pipeline import compile_model
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.reference import ModelClass, ModelSource, load_model
from infinity_v3.compiler.request import CompileRequest
from published_checkpoints import make_jina_bert_checkpoint, make_nomic_moe_checkpoint
from server_process import ServerProcess
from tiny_artifacts import FLOAT32_TARGET
from tiny_checkpoints import make_embedding_checkpoint, make_tiny_checkpoint
from tiny_families import CAUSAL_LM, SEQUENCE, TINY_FAMILIES, TOKEN
from tiny_retrievers import (
    ColbertTraits,
    make_colbert_checkpoint,
    make_reranker_checkpoint,
    make_splade_checkpoint,
    make_yes_no_reranker_checkpoint,
)

Floats = NDArray[np.float64]
VECTOR_ATOL = 2e-5
RAW_RTOL = 5e-5
"""Relative to max(1, |x|)."""
LABELS = ("O", "B-PER", "I-PER", "B-LOC")
SPARSE_FAMILIES = ("bert", "distilbert")
OWN_FAMILIES: Mapping[str, Callable[[Path], Path]] = {
    "jina_bert_v2": make_jina_bert_checkpoint,
    "nomic_bert_moe": make_nomic_moe_checkpoint,
}
"""Families that transformers lacks. Our classes, which tests compare with llama.cpp, stand in."""
EXPERT_FAMILIES = ("qwen3_moe", "nomic_bert_moe")
"""Built in float32 alone: half precision may route a token elsewhere."""
VARIANTS = ("deberta-v2-conv", "ultrabert-windows", "gte", "nemotron-embedding", "embeddinggemma")
"""Other checkpoints of a family whose heads are compared already: as embeddings alone."""
PAIR_FAMILIES = (
    "bert",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "deberta-v2",
    "modernbert",
    "nomic_bert",
    "new",
    "qwen2",
    "qwen3",
    "mistral",
    "ministral3",
    "gemma2",
)
"""Sequence classifiers of these have one label and rank pairs, of the others three labels."""
LATE_FAMILIES = ("bert", "modernbert", "xlm-roberta", "jina_embeddings_v3")
FEW_FAMILIES = 3
"""A group of so many is sampled once."""
TEXTS = (
    "a",
    "the quick brown fox",
    "the quick brown fox jumps over the lazy dog, and over the other dogs as well.",
    "Der Hund und die Katze, déjà vu: où est la forêt?",
    "one two three four five six seven eight nine ten " * 6,
    "the dog and the cat " * 40,
)
QUERY = "where does the quick fox sleep"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One family under one task, e.g. "bert" as "reranker"; `task` is a key of TASKS."""

    family: str
    task: str

    @property
    def name(self) -> str:
        return f"{self.family}-{self.task}"


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """One task of the matrix.

    Attributes:
        kind: of the artifact.
        make: (family, path) writes the checkpoint.
        ask: what the server answers to TEXTS: one array per text.
        expect: what the oracle says.
        checked_against: the oracle's name.
        is_normalized: arrays are vectors of length 1.
        asked_kind: `--task`, where the checkpoint does not say it.
    """

    kind: Kind
    make: Callable[[str, Path], Path]
    ask: Callable[[ServerProcess], list[Floats]]
    expect: Callable[[Path], list[Floats]]
    checked_against: str
    is_normalized: bool = False
    asked_kind: Kind | None = None


def compile_cell(cell: Cell, checkpoint: Path, out: Path, targets: Sequence[str]) -> Artifact:
    """Compile in this process."""
    request = CompileRequest(
        checkpoint=str(checkpoint),
        out=out,
        targets=tuple(targets),
        task=TASKS[cell.task].asked_kind,
        threads=1,
    )
    return compile_model(request, SilentProgress())


def check_cell(cell: Cell, compiled: CompiledArtifacts) -> None:
    """Compile, serve and compare one cell on the float32 target of this host."""
    compare_served(cell, _checkpoint(cell, compiled), cell_artifact(cell, compiled))


def cell_artifact(cell: Cell, compiled: CompiledArtifacts) -> Path:
    """The artifact of a cell, on the float32 target of this host; made once per run."""
    checkpoint = _checkpoint(cell, compiled)
    return compiled(
        f"matrix-{cell.name}", lambda p: compile_cell(cell, checkpoint, p, (FLOAT32_TARGET,))
    )


def _checkpoint(cell: Cell, compiled: CompiledArtifacts) -> Path:
    make = TASKS[cell.task].make
    return compiled(f"matrix-{cell.name}.checkpoint", lambda path: make(cell.family, path))


def compare_served(cell: Cell, checkpoint: Path, artifact: Path) -> None:
    """Ask a server that runs the artifact in float32, and compare with the oracle."""
    recipe = TASKS[cell.task]
    with ServerProcess(artifact, "--dtype", "float32") as server:
        found = recipe.ask(server)
    expected = recipe.expect(checkpoint)
    bound = VECTOR_ATOL if recipe.is_normalized else RAW_RTOL
    worst = deviation(found, expected)
    assert worst <= bound, f"{cell.name}: {worst:.3g}, allowed is {bound:g}"
    spread = max(deviation([row], [other]) for row, other in _comparable(expected))
    assert spread > 100 * bound, f"{cell.name}: all texts look alike"


def _comparable(rows: Sequence[Floats]) -> list[tuple[Floats, Floats]]:
    """The first rows of neighbouring texts, cut to what both have."""
    firsts = [np.atleast_2d(row)[:1] for row in rows]
    return list(pairwise(firsts))


def deviation(found: Sequence[Floats], expected: Sequence[Floats]) -> float:
    """Largest difference over all texts, relative to max(1, |expected|)."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape, (a.shape, b.shape)
        worst = max(worst, float((np.abs(a - b) / np.maximum(1.0, np.abs(b))).max()))
    return worst


def _post(server: ServerProcess, path: str, body: Mapping[str, object]) -> Any:  # noqa: ANN401
    reply = server.post(path, body)
    assert reply.status == 200, reply.body
    return reply.json()


def _arrays(rows: Sequence[object]) -> list[Floats]:
    return [np.asarray(row, dtype=np.float64) for row in rows]


def _embed(server: ServerProcess) -> list[Floats]:
    return _arrays(_post(server, "/embed", {"inputs": list(TEXTS)}))


def _expect_embed(path: Path) -> list[Floats]:
    vectors = oracles.sentence_vectors(path, TEXTS).double()
    return [row.numpy() for row in torch.nn.functional.normalize(vectors, dim=1)]


def _make_own(family: str, path: Path) -> Path:
    return OWN_FAMILIES[family](path)


def _expect_own(path: Path) -> list[Floats]:
    """Mean of the token vectors, as modules.json of these checkpoints says."""
    model = load_model(ModelSource(path=path), ModelClass.ENCODER, dtype=torch.float32)
    vectors = []
    for row in oracles.token_rows(path, TEXTS):
        ids = torch.tensor([row.ids])
        with torch.inference_mode():
            hidden = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        vectors.append(torch.nn.functional.normalize(hidden[0].mean(0).double(), dim=0).numpy())
    return vectors


def _classify(server: ServerProcess) -> list[Floats]:
    body = {"input": list(TEXTS), "use_activation": False}
    return _arrays([row["probs"] for row in _post(server, "/v1/classify", body)["data"]])


def _expect_classify(path: Path) -> list[Floats]:
    rows = oracles.token_rows(path, TEXTS)
    return [row.double().numpy() for row in oracles.sequence_logits(path, rows)]


def _rank(server: ServerProcess) -> list[Floats]:
    body = {"query": QUERY, "texts": list(TEXTS), "raw_scores": True}
    rows = _post(server, "/rerank", body)
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    return _arrays([[row["score"]] for row in sorted(rows, key=lambda row: int(row["index"]))])


def _expect_rank(path: Path) -> list[Floats]:
    rows = oracles.token_rows(path, [(QUERY, text) for text in TEXTS])
    return [row.double().numpy() for row in oracles.sequence_logits(path, rows)]


def _expect_yes_no(path: Path) -> list[Floats]:
    rows = oracles.chat_rows(path, [(QUERY, text) for text in TEXTS])
    return [row[None].double().numpy() for row in oracles.yes_log_odds(path, rows)]


def _classify_tokens(server: ServerProcess) -> list[Floats]:
    body = {"inputs": list(TEXTS), "raw_scores": True, "ignore_labels": []}
    rows = _post(server, "/predict_tokens", body)
    return _arrays(
        [[[token["results"][label] for label in LABELS] for token in row] for row in rows]
    )


def _expect_tokens(path: Path) -> list[Floats]:
    rows = oracles.token_rows(path, TEXTS)
    inner = _special_masks(path)
    logits = oracles.token_logits(path, rows)
    return [
        row[torch.tensor(mask) == 0].double().numpy()
        for row, mask in zip(logits, inner, strict=True)
    ]


def _special_masks(path: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return [tokenizer.encode(text).special_tokens_mask for text in TEXTS]


def _embed_sparse(server: ServerProcess) -> list[Floats]:
    return [_dense(row) for row in _post(server, "/embed_sparse", {"inputs": list(TEXTS)})]


SPARSE_WIDTH = 4096


def _dense(row: Sequence[Mapping[str, float]]) -> Floats:
    """A sparse vector, zeros included, in more places than any tiny vocabulary has."""
    vector = np.zeros(SPARSE_WIDTH)
    for entry in row:
        assert entry["value"] > 0.0
        vector[int(entry["index"])] = entry["value"]
    return vector


def _expect_sparse(path: Path) -> list[Floats]:
    vectors = oracles.sparse_vectors(path, TEXTS).double().numpy()
    return [np.pad(row, (0, SPARSE_WIDTH - len(row))) for row in vectors]


def _embed_all(server: ServerProcess) -> list[Floats]:
    sides = ("query", "document")
    return [
        matrix
        for side in sides
        for matrix in _arrays(
            _post(server, "/embed_all", {"inputs": list(TEXTS), "prompt_name": side})
        )
    ]


def _expect_late(path: Path) -> list[Floats]:
    return [
        matrix.double().numpy()
        for is_query in (True, False)
        for matrix in oracles.colbert_vectors(path, TEXTS, is_query=is_query)
    ]


def _make_classifier(family: str, path: Path) -> Path:
    return make_tiny_checkpoint(family, path, pooling=None, head=SEQUENCE, num_labels=3)


def _make_token_classifier(family: str, path: Path) -> Path:
    return make_tiny_checkpoint(family, path, pooling=None, head=TOKEN, labels=LABELS)


def _make_colbert(family: str, path: Path) -> Path:
    # Windows of tiny models are shorter than usual queries.
    traits = ColbertTraits(query_length=8) if family == "modernbert" else None
    return make_colbert_checkpoint(family, path, traits=traits)


def _make_yes_no(family: str, path: Path) -> Path:
    return make_yes_no_reranker_checkpoint(family, path, modules=True)


TASKS: Mapping[str, TaskRecipe] = {
    "embedding": TaskRecipe(
        kind=Kind.EMBEDDING,
        make=make_embedding_checkpoint,
        ask=_embed,
        expect=_expect_embed,
        checked_against="sentence-transformers",
        is_normalized=True,
    ),
    "own_embedding": TaskRecipe(
        kind=Kind.EMBEDDING,
        make=_make_own,
        ask=_embed,
        expect=_expect_own,
        checked_against="llama.cpp by way of our class",
        is_normalized=True,
    ),
    "classifier": TaskRecipe(
        kind=Kind.CLASSIFIER,
        make=_make_classifier,
        ask=_classify,
        expect=_expect_classify,
        checked_against="transformers",
    ),
    "reranker": TaskRecipe(
        kind=Kind.RERANKER,
        make=make_reranker_checkpoint,
        ask=_rank,
        expect=_expect_rank,
        checked_against="transformers",
    ),
    "token_classifier": TaskRecipe(
        kind=Kind.TOKEN_CLASSIFIER,
        make=_make_token_classifier,
        ask=_classify_tokens,
        expect=_expect_tokens,
        checked_against="transformers",
    ),
    "sparse": TaskRecipe(
        kind=Kind.SPARSE,
        make=make_splade_checkpoint,
        ask=_embed_sparse,
        expect=_expect_sparse,
        checked_against="sentence-transformers",
    ),
    "yes_no_reranker": TaskRecipe(
        kind=Kind.RERANKER,
        make=_make_yes_no,
        ask=_rank,
        expect=_expect_yes_no,
        checked_against="transformers",
        asked_kind=Kind.RERANKER,
    ),
    "late_interaction": TaskRecipe(
        kind=Kind.LATE_INTERACTION,
        make=_make_colbert,
        ask=_embed_all,
        expect=_expect_late,
        checked_against="sentence-transformers",
        is_normalized=True,
    ),
}


def cells_of(families: Sequence[str]) -> tuple[Cell, ...]:
    """Every cell of some families: each head that transformers has for them."""
    return tuple(
        Cell(family=family, task=task) for family in families for task in _tasks_of(family)
    )


def sampled_cells_of(families: Sequence[str]) -> tuple[Cell, ...]:
    """The first family under its first head; of more than three the second under its rarest.

    What runs on every change, once for each group of families; `make matrix` runs all.
    """
    first = cells_of(families[:1])[:1]
    return first if len(families) <= FEW_FAMILIES else (*first, cells_of(families[1:2])[-1])


def _tasks_of(family: str) -> tuple[str, ...]:
    if family in OWN_FAMILIES:
        return ("own_embedding",)
    heads = () if family in VARIANTS else TINY_FAMILIES[family].heads
    has = {
        "embedding": True,
        "classifier": SEQUENCE in heads and family not in PAIR_FAMILIES,
        "reranker": SEQUENCE in heads and family in PAIR_FAMILIES,
        "token_classifier": TOKEN in heads,
        # The tiny window of mistral does not reach the texts from behind the prompt's end.
        "yes_no_reranker": CAUSAL_LM in heads and family != "mistral",
        "sparse": family in SPARSE_FAMILIES,
        "late_interaction": family in LATE_FAMILIES,
    }
    return tuple(task for task, is_there in has.items() if is_there)


def all_cells() -> tuple[Cell, ...]:
    """Every cell of every family."""
    return cells_of((*TINY_FAMILIES, *OWN_FAMILIES))
