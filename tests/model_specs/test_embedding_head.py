"""The resolved head is the one that sentence-transformers applies."""

import itertools
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules.pooling import Pooling

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.embedding_head import EmbeddingHead, resolve_embedding_head
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.registry import match
from tiny_checkpoints import (
    POOLING_FLAGS,
    TinyDense,
    make_tiny_checkpoint,
    set_json_key,
    write_json,
)

SENTENCE_TRANSFORMERS_NAMES = {
    PoolingMode.CLS: "cls",
    PoolingMode.MEAN: "mean",
    PoolingMode.MAX: "max",
    PoolingMode.MEAN_SQRT_LEN: "mean_sqrt_len_tokens",
    PoolingMode.WEIGHTED_MEAN: "weightedmean",
    PoolingMode.LAST_TOKEN: "lasttoken",
}


def head_of(
    path: Path,
    pooling: PoolingMode | None = None,
    alternatives: tuple[PoolingMode, ...] = (),
) -> EmbeddingHead:
    config = read_hub_config(path)
    return resolve_embedding_head(config, match(config), pooling=pooling, alternatives=alternatives)


def pool(pooling: Pooling) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    hidden = torch.randn((2, 5, 32), generator=generator)
    features = {"token_embeddings": hidden, "attention_mask": mask}
    vectors: torch.Tensor = pooling(features)["sentence_embedding"]
    return vectors


def test_real_checkpoint_pools_by_mean_and_normalises(minilm: Path) -> None:
    head = head_of(minilm)
    assert head == EmbeddingHead(
        modes=(PoolingMode.MEAN,),
        alternatives=(),
        dense=(),
        normalize=True,
        dimensions=384,
        warnings=(),
    )


@pytest.mark.parametrize("new_names", [False, True])
@pytest.mark.parametrize(
    "modes",
    [
        *[(mode,) for mode in POOLING_FLAGS],
        *itertools.permutations(("mean", "max", "cls"), 2),
        ("last-token", "weighted-mean", "mean-sqrt-len"),
        tuple(reversed(list(POOLING_FLAGS))),
    ],
)
def test_modes_are_concatenated_in_the_order_of_sentence_transformers(
    bert: Path, modes: tuple[str, ...], new_names: bool
) -> None:
    make_tiny_checkpoint("bert", bert, pooling=modes, new_names=new_names)
    head = head_of(bert)
    names = [SENTENCE_TRANSFORMERS_NAMES[mode] for mode in head.modes]
    single = [Pooling(32, name) for name in names]
    expected = pool(Pooling.load(str(bert), subfolder="1_Pooling"))
    torch.testing.assert_close(
        torch.cat([pool(pooling) for pooling in single], dim=1), expected, atol=0, rtol=0
    )
    assert head.dimensions == expected.shape[1] == 32 * len(modes)


@pytest.mark.parametrize("document", [{}, {"pooling_mode_cls_token": False}])
def test_pooling_that_names_no_mode_is_mean_as_in_sentence_transformers(
    bert: Path, document: dict[str, bool]
) -> None:
    write_json(bert / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, **document})
    assert Pooling.load(str(bert), subfolder="1_Pooling").pooling_mode == "mean"
    assert head_of(bert).modes == (PoolingMode.MEAN,)


def test_dense_chain_decides_the_width(tmp_path: Path) -> None:
    layers = (TinyDense(out_features=24), TinyDense(out_features=7))
    path = make_tiny_checkpoint("bert", tmp_path, pooling=("cls", "mean"), dense=layers)
    head = head_of(path)
    assert [layer.out_features for layer in head.dense] == [24, 7]
    vectors = SentenceTransformer(str(path), device="cpu").encode(["a cat", "a dog"])
    assert head.dimensions == vectors.shape[1] == 7


def test_bare_checkpoint_pools_the_first_token_with_a_warning(tmp_path: Path) -> None:
    head = head_of(make_tiny_checkpoint("distilbert", tmp_path, pooling=None))
    assert (head.modes, head.normalize) == ((PoolingMode.CLS,), False)
    (warning,) = head.warnings
    assert "no pooling is stored, taking cls as distilbert models do" in warning
    assert "--pooling" in warning


def test_bare_checkpoint_of_a_family_without_default_asks_for_pooling(tmp_path: Path) -> None:
    from dataclasses import replace

    config = read_hub_config(make_tiny_checkpoint("bert", tmp_path, pooling=None))
    spec = replace(match(config), default_pooling=None)
    with pytest.raises(UsageError, match=r"found none; choose one with --pooling \(cls, mean, max"):
        resolve_embedding_head(config, spec)
    assert resolve_embedding_head(config, spec, pooling=PoolingMode.MEAN).dimensions == 32


def test_stored_pooling_without_a_module_list_counts(bert: Path) -> None:
    (bert / "modules.json").unlink()
    head = head_of(bert)
    assert (head.modes, head.normalize, head.warnings) == ((PoolingMode.MEAN,), False, ())


def test_users_pooling_replaces_the_stored_one(minilm: Path) -> None:
    head = head_of(minilm, PoolingMode.CLS)
    assert (head.modes, head.normalize, head.warnings) == ((PoolingMode.CLS,), True, ())


def test_alternatives_leave_out_the_chosen_pooling_and_repetitions(minilm: Path) -> None:
    asked = (PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.CLS, PoolingMode.MAX)
    head = head_of(minilm, alternatives=asked)
    assert head.modes == (PoolingMode.MEAN,)
    assert head.alternatives == (PoolingMode.CLS, PoolingMode.MAX)


def test_alternative_beside_a_concatenation_is_refused(tmp_path: Path) -> None:
    path = make_tiny_checkpoint("bert", tmp_path, pooling=("cls", "mean"))
    with pytest.raises(UsageError, match=r"--pooling: max can't stand beside cls\+mean"):
        head_of(path, alternatives=(PoolingMode.MAX,))


@pytest.mark.parametrize("alternatives", [(), (PoolingMode.SPLADE,)])
def test_splade_is_refused(minilm: Path, alternatives: tuple[PoolingMode, ...]) -> None:
    pooling = None if alternatives else PoolingMode.SPLADE
    with pytest.raises(UsageError, match=r"--pooling: expected one of cls, mean, .* found splade"):
        head_of(minilm, pooling, alternatives)


def test_widths_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    layers = (TinyDense(out_features=24),)
    path = make_tiny_checkpoint("bert", tmp_path, pooling=("cls", "mean"), dense=layers)
    sentence = r"2_Dense/config.json: in_features: expected 32 \(pooling max\), found 64"
    with pytest.raises(UsageError, match=sentence):
        head_of(path, PoolingMode.MAX)
    set_json_key(path / "1_Pooling" / "config.json", "word_embedding_dimension", 48)
    with pytest.raises(UsageError, match=r"expected token vectors of the encoder's width 32"):
        head_of(path)
