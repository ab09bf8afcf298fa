"""Every family, compiled by the real program and run by the runtime, against its reference."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from compiled import CompiledArtifacts
from engine_calls import (
    Floats,
    Ids,
    OpenedEngine,
    assert_cosine,
    assert_near,
    assert_tokens_near,
    normalized,
    opened_engine,
    random_ids,
)
from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import PoolingMode, Precision
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.target import DtypeChoice, TargetRequest, select_target
from infinity_v3.runtime.batch import pack
from infinity_v3.runtime.loading import LoadedModel, LoadSettings, load_model
from infinity_v3.runtime.postprocess import l2_normalize
from infinity_v3.runtime.truncation import Truncation
from reference_library import load_reference_model
from tiny_artifacts import (
    ALTERNATIVES,
    CAMEMBERT,
    FAMILY_RECIPES,
    FLOAT32_TARGET,
    HOST_TARGETS,
    ROBERTA,
    TinyArtifact,
    make_artifact,
)

VECTOR_ATOL = 2e-5
TOKEN_RTOL = 5e-5
BATCH_ATOL = 1e-5
HALF_COSINE = 0.999
HALF_BATCH_COSINE = 0.9999
MAX_TOKENS = 512
LENGTHS = (1, 2, 3, 31, 64, 17, 257, 1, MAX_TOKENS, 128, 5)
TEXTS = (
    "",
    "a",
    "the quick brown fox jumps over the lazy dog.",
    "Der Hund und die Katze",
    "déjà vu: où est la forêt? Straße, schön, élève",
    "深度 学习 测试 天气, こんにちは 世界, مرحبا عالم, नमस्ते दुनिया 🙂🚀",
    "e\u0301 \u00e9 \u200b\u00a0 tab\there",
    "again and again " * 20,
    "what is deep learning? " * 200,
)
"""The last one is longer than any of the models takes."""

MODES = {
    PoolingMode.MEAN_SQRT_LEN: "mean_sqrt_len_tokens",
    PoolingMode.WEIGHTED_MEAN: "weightedmean",
    PoolingMode.LAST_TOKEN: "lasttoken",
}
"""Names that sentence-transformers has for poolings, where they differ from ours."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One compiled checkpoint, its float32 engine, and what the reference libraries make of it."""

    tiny: TinyArtifact
    opened: OpenedEngine
    sentences: SentenceTransformer
    encoder: nn.Module

    @property
    def vocab_size(self) -> int:
        return self.opened.artifact.manifest.model.vocab_size

    def texts(self) -> list[Ids]:
        """Mixed lengths at every edge."""
        return [*random_ids(np.random.default_rng(7), LENGTHS, self.vocab_size)]


@pytest.fixture(scope="module", params=FAMILY_RECIPES, ids=lambda recipe: recipe.family)
def family(
    request: pytest.FixtureRequest, compiled_artifact: CompiledArtifacts
) -> Iterator[Family]:
    with opened_family(make_artifact(compiled_artifact, request.param)) as opened:
        yield opened


@pytest.fixture(scope="module")
def roberta(compiled_artifact: CompiledArtifacts) -> Iterator[Family]:
    with opened_family(make_artifact(compiled_artifact, ROBERTA)) as opened:
        yield opened


@pytest.fixture(scope="module")
def camembert(compiled_artifact: CompiledArtifacts) -> TinyArtifact:
    return make_artifact(compiled_artifact, CAMEMBERT)


@contextmanager
def opened_family(tiny: TinyArtifact) -> Iterator[Family]:
    with opened_engine(tiny.artifact, FLOAT32_TARGET) as opened:
        yield Family(
            tiny=tiny,
            opened=opened,
            sentences=load_sentences(tiny.checkpoint),
            encoder=load_eager(tiny.checkpoint),
        )


def load_sentences(checkpoint: Path) -> SentenceTransformer:
    return SentenceTransformer(str(checkpoint), device="cpu", local_files_only=True)


def load_eager(checkpoint: Path) -> nn.Module:
    model = load_reference_model(checkpoint)
    model.set_attn_implementation("eager")
    assert model.config._attn_implementation == "eager"
    return model


def sentence_vectors(sentences: SentenceTransformer, texts: Sequence[Ids]) -> Floats:
    """Vectors of ids, one text at a time: (B, D)."""
    rows = []
    for ids in texts:
        row = torch.as_tensor(np.asarray(ids))[None]
        features = {"input_ids": row, "attention_mask": torch.ones_like(row)}
        with torch.inference_mode():
            rows.append(sentences(features)["sentence_embedding"][0].float().numpy())
    return np.stack(rows)


def eager_hidden(encoder: nn.Module, ids: Ids) -> Floats:
    """Token vectors of one text: (S, D)."""
    row = torch.as_tensor(np.asarray(ids))[None]
    with torch.inference_mode():
        output = encoder(input_ids=row, attention_mask=torch.ones_like(row))
    hidden: Floats = output.last_hidden_state[0].numpy()
    return hidden


def with_pooling(sentences: SentenceTransformer, mode: PoolingMode) -> SentenceTransformer:
    """The same encoder under another pooling."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    width = sentences[1].pooling_output_dimension
    return SentenceTransformer(
        modules=[sentences[0], Pooling(width, pooling_mode=MODES.get(mode, mode.value))],
        device="cpu",
    )


def members(hidden: Floats, texts: Sequence[Ids]) -> list[Floats]:
    """Split (T, D) into the rows of each text."""
    return np.split(hidden, np.cumsum([len(ids) for ids in texts])[:-1])


def load_float32(tiny: TinyArtifact, settings: LoadSettings) -> LoadedModel:
    """As the server does it."""
    artifact = open_artifact(tiny.artifact)
    request = TargetRequest(dtype=DtypeChoice.FLOAT32)
    selection = select_target(artifact.manifest, detect_host(), request)
    return load_model(artifact, selection.target, settings)


def embed(model: LoadedModel, texts: Sequence[str], *, prompt: str) -> Floats:
    """What the server answers for texts, without a server: (B, D)."""
    truncation = Truncation(max_tokens=model.info.max_input_tokens)
    encoded = model.tokenizer.encode(texts, truncation, prompt=prompt)
    outputs = frozenset({model.main_output})
    batch = pack(encoded, position_offset=model.position_offset)
    return l2_normalize(model.engine.run(batch, outputs).tensors[model.main_output])


def test_the_limit_is_512_tokens_and_every_recipe_is_what_it_says(family: Family) -> None:
    manifest = family.opened.artifact.manifest
    assert manifest.model.max_input_tokens == MAX_TOKENS
    assert manifest.model.family == family.tiny.recipe.family
    wanted = family.tiny.recipe.traits.get("pooling", ("mean",))
    assert manifest.heads.pooling is not None
    assert {mode.value for mode in manifest.heads.pooling.modes} == set(wanted)
    assert all(target.parity.passed for target in manifest.targets)
    assert family.opened.target.name == FLOAT32_TARGET


def test_vectors_of_ids_equal_sentence_transformers(family: Family) -> None:
    texts = family.texts()
    found = family.opened.run(texts)["pooled"]
    expected = sentence_vectors(family.sentences, texts)
    assert_near(found, expected, atol=VECTOR_ATOL, what=family.tiny.recipe.key)
    spread = normalized(expected) @ normalized(expected).T
    assert spread[~np.eye(len(texts), dtype=bool)].min() < 0.99, "all texts look alike"


def test_token_vectors_equal_transformers(family: Family) -> None:
    texts = family.texts()
    found = members(family.opened.run(texts)["hidden"], texts)
    for hidden, ids in zip(found, texts, strict=True):
        what = f"{family.tiny.recipe.key}, {len(ids)} tokens"
        expected = eager_hidden(family.encoder, ids)
        assert_tokens_near(hidden, expected, rtol=TOKEN_RTOL, what=what)


def test_a_text_alone_equals_the_same_text_in_a_batch(family: Family) -> None:
    texts = family.texts()
    batched = family.opened.run(texts)
    hidden = members(batched["hidden"], texts)
    for position, ids in enumerate(texts):
        alone = family.opened.run([ids])
        what = f"{family.tiny.recipe.key}, {len(ids)} tokens"
        pooled = batched["pooled"][position : position + 1]
        assert_near(alone["pooled"], pooled, atol=BATCH_ATOL, what=what)
        assert_tokens_near(alone["hidden"], hidden[position], rtol=BATCH_ATOL, what=what)


def test_texts_equal_sentence_transformers(family: Family) -> None:
    model = load_float32(family.tiny, LoadSettings(num_threads=1))
    try:
        found = embed(model, TEXTS, prompt=model.prompts.default)
    finally:
        model.engine.close()
    # Its own padding and sorting are part of the comparison.
    expected = family.sentences.encode(list(TEXTS), batch_size=4, normalize_embeddings=True)
    assert_near(found, expected, atol=VECTOR_ATOL, what=family.tiny.recipe.key)


def test_prompts_equal_sentence_transformers(camembert: TinyArtifact) -> None:
    sentences = load_sentences(camembert.checkpoint)
    model = load_float32(camembert, LoadSettings(num_threads=1))
    try:
        assert set(model.prompts.names) == {"query", "passage"}
        by_name = {
            name: embed(model, TEXTS, prompt=model.prompts.text(name))
            for name in (None, "query", "passage")
        }
        plain = embed(model, TEXTS, prompt="")
    finally:
        model.engine.close()
    for name, found in by_name.items():
        expected = sentences.encode(list(TEXTS), prompt_name=name, normalize_embeddings=True)
        assert_near(found, expected, atol=VECTOR_ATOL, what=f"prompt {name}")
    assert np.array_equal(by_name[None], by_name["query"])
    assert np.abs(plain - by_name["query"]).max() > 100 * VECTOR_ATOL


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_compiled_in_poolings_equal_sentence_transformers(bert: TinyArtifact, name: str) -> None:
    mode = PoolingMode(name)
    sentences = with_pooling(load_sentences(bert.checkpoint), mode)
    model = load_float32(bert, LoadSettings(pooling=mode, num_threads=1))
    try:
        found = embed(model, TEXTS, prompt="")
    finally:
        model.engine.close()
    expected = sentences.encode(list(TEXTS), batch_size=4, normalize_embeddings=True)
    assert_near(found, expected, atol=VECTOR_ATOL, what=name)


@pytest.mark.parametrize("name", [target.name for target in HOST_TARGETS])
def test_every_target_of_this_host_is_within_its_tolerance(bert: TinyArtifact, name: str) -> None:
    sentences, encoder = load_sentences(bert.checkpoint), load_eager(bert.checkpoint)
    with opened_engine(bert.artifact, name) as opened:
        texts: list[Ids] = [
            *random_ids(
                np.random.default_rng(9), LENGTHS, opened.artifact.manifest.model.vocab_size
            )
        ]
        batched = opened.run(texts)
        alone = [opened.run([ids]) for ids in texts]
    expected = sentence_vectors(sentences, texts)
    hidden = np.concatenate([eager_hidden(encoder, ids) for ids in texts])
    pooled = np.concatenate([outputs["pooled"] for outputs in alone])
    if opened.target.precision is Precision.FLOAT32:
        assert_near(batched["pooled"], expected, atol=VECTOR_ATOL, what=name)
        assert_near(pooled, batched["pooled"], atol=BATCH_ATOL, what=f"{name} alone")
        assert_tokens_near(batched["hidden"], hidden, rtol=TOKEN_RTOL, what=name)
    else:
        assert_cosine(batched["pooled"], expected, at_least=HALF_COSINE, what=name)
        assert_cosine(pooled, batched["pooled"], at_least=HALF_BATCH_COSINE, what=f"{name} alone")
        assert_cosine(batched["hidden"], hidden, at_least=HALF_COSINE, what=f"{name} tokens")
    assert all(array.dtype == np.float32 for array in batched.values())


def test_positions_from_zero_would_miss_parity_by_far(roberta: Family) -> None:
    texts = roberta.texts()
    assert roberta.opened.artifact.manifest.model.position_offset == 2
    expected = normalized(sentence_vectors(roberta.sentences, texts))
    wrong = normalized(roberta.opened.run(texts, position_offset=0)["pooled"])
    missed = np.abs(wrong - expected).max(axis=1)
    assert missed.min() >= 100 * VECTOR_ATOL, f"smallest difference {missed.min():.3g}"
