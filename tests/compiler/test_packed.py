"""The packed form of transformers' encoders: the same numbers, and no option lost on the way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.compiler.heads import PoolingHead, pool_single
from infinity_v3.compiler.packed import PackedModel, install_packed_attention, packed_attention
from infinity_v3.compiler.reference import ModelClass, ModelSource, Reference, load_model
from infinity_v3.compiler.tasks.task import Probe
from tiny_checkpoints import FAMILIES, make_tiny_checkpoint

HEADS, DIM = 4, 8
LENGTHS = (5, 1, 12, 2)
OFFSETS = {"roberta": 2, "xlm-roberta": 2, "camembert": 2}
UNTYPED = ("input_ids", "position_ids", "cu_seqlens")
TYPED = ("input_ids", "position_ids", "token_type_ids", "cu_seqlens")


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
    heads: list[Tensor],
    visible: Callable[[Tensor], Tensor],
    scale: float,
    *,
    change: Callable[[Tensor, Tensor], Tensor] = lambda scores, _: scores,
) -> Tensor:
    """The definition, over distances i - j of tokens of one text; (T, H, D).

    Args:
        change: (scores (H, T, T), distances (T, T)) -> the scores to use.
    """
    query, key, value = (x[0] for x in heads)
    owner = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    position = torch.arange(len(owner))
    distance = position[:, None] - position[None]
    allowed = (owner[:, None] == owner[None]) & visible(distance)
    scores = change(query @ key.transpose(1, 2) * scale, distance)
    scores = scores.masked_fill(~allowed, float("-inf"))
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
        ({"s_aux": torch.zeros(HEADS)}, "s_aux"),
        ({"position_bias": torch.zeros(1)}, "position_bias"),
        (
            {"s_aux": torch.zeros(HEADS), "position_bias": torch.zeros(1)},
            "s_aux, position_bias",
        ),
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


def test_a_soft_cap_bounds_the_scores() -> None:
    heads = random_heads(sum(LENGTHS))
    expected = masked_softmax(
        heads, lambda d: d == d, 2.0, change=lambda scores, _: 1.5 * (scores / 1.5).tanh()
    )
    assert_near(attend(*heads, scaling=2.0, softcap=1.5), expected)
    assert (attend(*heads, scaling=2.0) - expected).abs().max() > 0.01


def test_a_bias_by_distance_is_added_to_the_scores() -> None:
    heads = random_heads(sum(LENGTHS))
    reach = max(LENGTHS)
    bias = torch.randn(HEADS, 2 * reach + 1, generator=torch.Generator().manual_seed(7))
    expected = masked_softmax(
        heads,
        lambda d: d == d,
        DIM**-0.5,
        # By the key's distance from the query, j - i.
        change=lambda scores, d: scores + bias[:, (reach - d).clamp(0, 2 * reach)],
    )
    assert_near(attend(*heads, distance_bias=bias), expected)


def test_tokens_that_texts_share_are_stored_once() -> None:
    # The last of two tokens is its text's own, the first one is that of the first text.
    num_stored = sum(LENGTHS) - 1
    heads = random_heads(num_stored)
    rows = torch.arange(sum(LENGTHS))
    rows[-2:] = torch.tensor([0, num_stored - 1])
    found = attend(*heads, packed_rows=rows, is_causal=True)
    spread = [x[:, :, rows] for x in heads]
    assert_near(found[rows], masked_softmax(spread, lambda d: d >= 0, DIM**-0.5))


def test_hidden_tokens_look_at_those_that_are_seen() -> None:
    heads = random_heads(sum(LENGTHS))
    counts = torch.tensor([3, 1, 12, 1], dtype=torch.int32)
    owner = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    place = torch.arange(len(owner)) - bounds(LENGTHS)[owner]
    is_hidden = place >= counts[owner]
    expected = masked_softmax(
        heads,
        lambda d: d == d,
        DIM**-0.5,
        change=lambda scores, _: scores.masked_fill(is_hidden, float("-inf")),
    )
    assert_near(attend(*heads, packed_key_counts=counts), expected)
    assert (attend(*heads) - expected).abs().max() > 0.01


def test_fewer_key_heads_are_shared_by_groups() -> None:
    query, key, value = random_heads(sum(LENGTHS), kv_heads=2)
    wide = [query, key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)]
    expected = masked_softmax(wide, lambda d: d == d, DIM**-0.5)
    assert_near(attend(query, key, value), expected)


def load_packed(checkpoint: Path) -> nn.Module:
    source = ModelSource(path=checkpoint)
    return load_model(source, ModelClass.ENCODER, dtype=torch.float32, is_packed=True)


def make_packed(family: str, checkpoint: Path) -> PackedModel:
    head = PoolingHead([(PoolingMode.MEAN,), (PoolingMode.CLS, PoolingMode.MAX)], [])
    names = UNTYPED if family == "distilbert" else TYPED
    return PackedModel(load_packed(checkpoint), head, names).eval()


def packed_inputs(
    texts: list[Tensor], types: list[Tensor], names: tuple[str, ...], *, offset: int = 0
) -> tuple[Tensor, ...]:
    tensors = {
        "input_ids": torch.cat(texts),
        "position_ids": torch.cat([torch.arange(len(ids)) + offset for ids in texts]),
        "token_type_ids": torch.cat(types),
        "cu_seqlens": bounds(tuple(len(ids) for ids in texts)),
    }
    return tuple(tensors[name] for name in names)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_packed_encoder_equals_the_eager_one(
    family: str, checkpoints: Callable[[str], Path]
) -> None:
    model = make_packed(family, checkpoints(family))
    generator = torch.Generator().manual_seed(3)
    texts = [torch.randint(7, 100, (length,), generator=generator) for length in LENGTHS]
    types = [(torch.arange(len(ids)) % 2) * (family == "bert") for ids in texts]
    inputs = packed_inputs(texts, types, model.input_names, offset=OFFSETS.get(family, 0))
    with torch.inference_mode():
        mean, pair, hidden = model(*inputs)
    reference = Reference(ModelSource(path=checkpoints(family)), ModelClass.ENCODER)
    expected = [
        reference.run(
            Probe(ids=ids.numpy(), types=kinds.numpy() if family == "bert" else None)
        ).last_hidden_state[0]
        for ids, kinds in zip(texts, types, strict=True)
    ]
    assert_near(hidden, torch.cat(expected), atol=2e-5)
    for row, rows in enumerate(expected):
        assert_near(mean[row], pool_single(rows, PoolingMode.MEAN), atol=2e-5)
        both = [pool_single(rows, mode) for mode in (PoolingMode.CLS, PoolingMode.MAX)]
        assert_near(pair[row], torch.cat(both), atol=2e-5)


def test_inputs_are_counted(checkpoints: Callable[[str], Path]) -> None:
    model = make_packed("bert", checkpoints("bert"))
    ids = torch.arange(7, 12)
    with pytest.raises(ValueError, match="zip"):
        model(*packed_inputs([ids], [torch.zeros_like(ids)], UNTYPED))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_without_our_attention_texts_would_run_together(
    attention: str, checkpoints: Callable[[str], Path]
) -> None:
    # Why the exporter counts our operators: nothing fails here, the numbers are just wrong.
    model = make_packed("distilbert", checkpoints("distilbert"))
    unpacked: Any = load_packed(checkpoints("distilbert"))
    unpacked.config._attn_implementation = attention
    wrong = PackedModel(unpacked, model.head, UNTYPED)
    texts = list(torch.split(torch.arange(7, 7 + sum(LENGTHS)), list(LENGTHS)))
    inputs = packed_inputs(texts, texts, UNTYPED)
    with torch.inference_mode():
        right, found = model(*inputs)[-1], wrong(*inputs)[-1]
    assert (right - found).abs().max() > 0.01
