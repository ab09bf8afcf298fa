"""The packed form of transformers' encoders: the same numbers, and no option lost on the way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.compiler.heads import PoolingHead, pool_single
from infinity_v3.compiler.packed import (
    ATTENTION_NAME,
    PackedModel,
    PackedModelWithoutTypes,
    PackedModelWithTypes,
    install_packed_attention,
    packed_attention,
)
from infinity_v3.compiler.reference import Reference, load_encoder
from tiny_checkpoints import FAMILIES, make_tiny_checkpoint

HEADS, DIM = 4, 8
LENGTHS = (5, 1, 12, 2)
OFFSETS = {"roberta": 2, "xlm-roberta": 2, "camembert": 2}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    made: dict[str, Path] = {}

    def give(family: str) -> Path:
        if family not in made:
            made[family] = make_tiny_checkpoint(family, root / family)
        return made[family]

    return give


@pytest.fixture(autouse=True)
def operators() -> None:
    install_packed_attention()


def bounds(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def random_heads(num_tokens: int, *, kv_heads: int = HEADS) -> list[Tensor]:
    """Query, key and value as transformers passes them: (1, H, T, D)."""
    generator = torch.Generator().manual_seed(num_tokens)
    shapes = [(1, heads, num_tokens, DIM) for heads in (HEADS, kv_heads, kv_heads)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def attend(*heads: Tensor, **options: object) -> Tensor:
    """Call as an attention layer would; (T, H, D)."""
    arguments: dict[str, Any] = {"module": nn.Identity(), "attention_mask": None}
    arguments |= {"cu_seq_lens_q": bounds(LENGTHS), **options}
    query, key, value = heads
    out, weights = packed_attention(query=query, key=key, value=value, **arguments)
    assert weights is None
    assert out.shape[0] == 1
    return out[0]


def masked_softmax(
    heads: list[Tensor], visible: Callable[[Tensor], Tensor], scale: float
) -> Tensor:
    """The definition, over distances i - j of tokens of one text; (T, H, D)."""
    query, key, value = (x[0] for x in heads)
    owner = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    position = torch.arange(len(owner))
    allowed = (owner[:, None] == owner[None]) & visible(position[:, None] - position[None])
    scores = (query @ key.transpose(1, 2) * scale).masked_fill(~allowed, float("-inf"))
    return (scores.softmax(-1) @ value).transpose(0, 1)


def assert_near(found: Tensor, expected: Tensor, *, atol: float = 1e-5) -> None:
    difference = (found - expected).abs()
    assert found.shape == expected.shape
    assert difference.max() <= atol, f"max {difference.max():.3g}, mean {difference.mean():.3g}"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attention_mask": torch.zeros(1, 1, 20, 20)}, "an attention mask"),
        ({"cu_seq_lens_q": None}, "an unpacked input"),
        ({"softcap": 30.0}, "softcap"),
        ({"s_aux": torch.zeros(HEADS)}, "s_aux"),
        ({"position_bias": torch.zeros(1)}, "position_bias"),
        ({"softcap": 30.0, "s_aux": torch.zeros(HEADS)}, "softcap, s_aux"),
    ],
)
def test_what_would_change_the_numbers_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotImplementedError, match=f"Identity needs .*{reason} in packed attention"):
        attend(*random_heads(sum(LENGTHS)), **options)


def test_what_cannot_change_the_numbers_is_taken() -> None:
    heads = random_heads(sum(LENGTHS))
    expected = attend(*heads)
    extras = {"dropout": 0.0, "softcap": None, "s_aux": None, "output_attentions": False}
    assert torch.equal(attend(*heads, **extras), expected)


def test_texts_do_not_see_each_other() -> None:
    heads = random_heads(sum(LENGTHS))
    assert_near(attend(*heads), masked_softmax(heads, lambda d: d == d, DIM**-0.5))


def test_a_scale_of_the_module_is_used() -> None:
    heads = random_heads(sum(LENGTHS))
    assert_near(attend(*heads, scaling=0.9), masked_softmax(heads, lambda d: d == d, 0.9))


@pytest.mark.parametrize("window", [1, 3, 100])
def test_a_sliding_window_excludes_its_bound(window: int) -> None:
    heads = random_heads(sum(LENGTHS))
    expected = masked_softmax(heads, lambda d: d.abs() < window, DIM**-0.5)
    assert_near(attend(*heads, sliding_window=window), expected)


@pytest.mark.parametrize("window", [1, 3, 100])
def test_a_causal_sliding_window_excludes_its_bound(window: int) -> None:
    heads = random_heads(sum(LENGTHS))
    expected = masked_softmax(heads, lambda d: (d >= 0) & (d < window), DIM**-0.5)
    assert_near(attend(*heads, sliding_window=window, is_causal=True), expected)


def test_causality_is_the_caller_s_word_before_the_module_s() -> None:
    heads = random_heads(sum(LENGTHS))
    module = nn.Identity()
    module.is_causal = True  # type: ignore[assignment]  # as attention layers of decoders have it
    causal = masked_softmax(heads, lambda d: d >= 0, DIM**-0.5)
    plain = masked_softmax(heads, lambda d: d == d, DIM**-0.5)
    assert_near(attend(*heads, module=module), causal)
    assert_near(attend(*heads, module=module, is_causal=False), plain)
    assert_near(attend(*heads, is_causal=True), causal)


def test_fewer_key_heads_are_shared_by_groups() -> None:
    query, key, value = random_heads(sum(LENGTHS), kv_heads=2)
    wide = [query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)]
    expected = masked_softmax(wide, lambda d: d == d, DIM**-0.5)
    assert_near(attend(query, key, value), expected)


def make_packed(family: str, checkpoint: Path) -> PackedModel:
    encoder = load_encoder(checkpoint, dtype=torch.float32, attention=ATTENTION_NAME)
    head = PoolingHead([(PoolingMode.MEAN,), (PoolingMode.CLS, PoolingMode.MAX)], [])
    has_types = family != "distilbert"
    return (PackedModelWithTypes if has_types else PackedModelWithoutTypes)(encoder, head).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_packed_encoder_equals_the_eager_one(
    family: str, checkpoints: Callable[[str], Path]
) -> None:
    model = make_packed(family, checkpoints(family))
    generator = torch.Generator().manual_seed(3)
    texts = [torch.randint(7, 100, (length,), generator=generator) for length in LENGTHS]
    inputs = {
        "input_ids": torch.cat(texts),
        "position_ids": torch.cat([torch.arange(n) + OFFSETS.get(family, 0) for n in LENGTHS]),
        "cu_seqlens": bounds(LENGTHS),
    }
    if isinstance(model, PackedModelWithTypes):
        inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    with torch.inference_mode():
        mean, pair, hidden = model(**inputs)
    reference = Reference(checkpoints(family))
    expected = [reference.hidden(ids) for ids in texts]
    assert reference.num_layers == 2
    assert_near(hidden, torch.cat(expected), atol=2e-5)
    for row, rows in enumerate(expected):
        assert_near(mean[row], pool_single(rows, PoolingMode.MEAN), atol=2e-5)
        both = [pool_single(rows, mode) for mode in (PoolingMode.CLS, PoolingMode.MAX)]
        assert_near(pair[row], torch.cat(both), atol=2e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_without_our_attention_texts_would_run_together(
    attention: str, checkpoints: Callable[[str], Path]
) -> None:
    # Why the exporter counts our operators: nothing fails here, the numbers are just wrong.
    model = make_packed("distilbert", checkpoints("distilbert"))
    unpacked = load_encoder(checkpoints("distilbert"), dtype=torch.float32, attention=attention)
    wrong = PackedModelWithoutTypes(unpacked, model.head)
    inputs = {
        "input_ids": torch.arange(7, 7 + sum(LENGTHS)),
        "position_ids": torch.cat([torch.arange(n) for n in LENGTHS]),
        "cu_seqlens": bounds(LENGTHS),
    }
    with torch.inference_mode():
        right, found = model(**inputs)[-1], wrong(**inputs)[-1]
    assert (right - found).abs().max() > 0.01
