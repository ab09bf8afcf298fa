"""Calls an encoder with one text at a time and with all texts end to end, to compare the two.

Knows nothing of the product: it calls what it is given.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

ModelT = TypeVar("ModelT", bound=nn.Module)

LENGTHS = (1, 2, 3, 17, 64)


def random_texts(lengths: Sequence[int], *, vocab_size: int, seed: int = 0) -> list[Tensor]:
    """Token ids, none of them special; (S,) int64 each."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(5, vocab_size, (length,), generator=generator) for length in lengths]


def spread_weights(model: ModelT, *, seed: int = 0) -> ModelT:
    """Seeded weights wide enough that no lost part could hide within rounding, for inference."""
    generator = torch.Generator().manual_seed(seed)
    model.eval().requires_grad_(False)
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        is_scale = "norm" in name.lower() and name.endswith("weight")
        parameter.copy_(1.0 + 0.2 * noise if is_scale else 0.3 * noise)
    return model


def encode_alone(model: nn.Module, texts: Sequence[Tensor]) -> list[Tensor]:
    """Last hidden state of each text, (S, D), as users of transformers compute it."""
    with torch.inference_mode():
        return [
            model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None]).last_hidden_state[
                0
            ]
            for ids in texts
        ]


def packed_inputs(texts: Sequence[Tensor], *, first_position: int = 0) -> dict[str, Tensor]:
    """What packed encoders are called with."""
    lengths = [len(ids) for ids in texts]
    positions = torch.cat([torch.arange(length) + first_position for length in lengths])
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    return {
        "input_ids": torch.cat(list(texts))[None],
        "position_ids": positions[None],
        "cu_seq_lens_q": bounds,
    }


def encode_packed(
    model: nn.Module, texts: Sequence[Tensor], *, first_position: int = 0
) -> list[Tensor]:
    """Last hidden state of each text, (S, D), all computed in one row."""
    with torch.inference_mode():
        output = model(**packed_inputs(texts, first_position=first_position), return_dict=True)
    return list(output.last_hidden_state[0].split([len(ids) for ids in texts]))


def largest_difference(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    return max(float((x - y).abs().max()) for x, y in zip(left, right, strict=True))
