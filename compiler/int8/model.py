"""Turns a packed model's encoder into one with 8-bit linear layers."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.int8.calibration import watch_linears
from infinity_v3.compiler.int8.linear import replace_linears
from infinity_v3.compiler.int8.texts import calibration_texts
from infinity_v3.compiler.int8.weights import PANEL
from infinity_v3.compiler.packed import CU_SEQLENS, KEY_COUNTS, READOUTS, ROWS, PackedModel

_SEED = 4_096
_NUM_RANDOM = 8
_RANDOM_TOKENS = 48
_BATCH_TEXTS = 16


def quantize_encoder(
    model: PackedModel,
    tokenizer: Tokenizer,
    *,
    vocab_size: int,
    max_tokens: int,
    position_offset: int,
) -> None:
    """Calibrate on texts and replace the encoder's linear layers.

    Heads stay as they are: their few numbers per text are worth little time and much accuracy. So
    does the first block, whose errors all others carry on.

    Args:
        model: bfloat16, in eager form.
        tokenizer: of the checkpoint, without padding and truncation.
        vocab_size: ids beyond it are left out.
        max_tokens: longer texts are cut.
        position_offset: position of a text's first token.

    Raises:
        UsageError: no layer would gain.
    """
    ids = calibration_ids(tokenizer, vocab_size, max_tokens)
    runs = [
        partial(model, *pack_ids(ids[i : i + _BATCH_TEXTS], model.input_names, position_offset))
        for i in range(0, len(ids), _BATCH_TEXTS)
    ]
    groups = watch_linears(model.encoder, runs)
    if not groups:
        raise UsageError(
            f"8-bit engines: expected a linear layer of {PANEL} outputs or more, found none; such "
            "a small model gains nothing: leave the target out"
        )
    names = {module: name for name, module in model.encoder.named_modules()}
    later = [group for group in groups if not _is_in_first_block(names[group.linears[0]])]
    replace_linears(model.encoder, later or groups)


def _is_in_first_block(name: str) -> bool:
    """Blocks are numbered in the names of their parts."""
    return "0" in name.split(".")


def calibration_ids(
    tokenizer: Tokenizer, vocab_size: int, max_tokens: int
) -> list[NDArray[np.int64]]:
    """Texts as the model would read them, and a few random ones, which reach other numbers."""
    rows = [
        np.asarray(tokenizer.encode(text).ids[:max_tokens], dtype=np.int64)
        for text in calibration_texts()
    ]
    rng = np.random.default_rng(_SEED)
    length = min(_RANDOM_TOKENS, max_tokens)
    rows += [rng.integers(vocab_size, size=length) for _ in range(_NUM_RANDOM)]
    return [row for row in rows if len(row) and row.max() < vocab_size]


def pack_ids(
    texts: Sequence[NDArray[np.int64]], input_names: Sequence[str], position_offset: int
) -> list[Tensor]:
    """The inputs of a packed model for some texts, in order."""
    lengths = torch.tensor([len(text) for text in texts])
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(torch.int32)
    ids = torch.from_numpy(np.concatenate(texts))
    known = {
        "input_ids": ids,
        "position_ids": torch.cat([torch.arange(len(text)) for text in texts]) + position_offset,
        "token_type_ids": torch.zeros_like(ids),
        CU_SEQLENS: bounds,
        ROWS: torch.arange(len(ids)),
        KEY_COUNTS: bounds.diff(),
        READOUTS: bounds[:-1].to(torch.int64),
    }
    return [known[name] for name in input_names]
