"""What the engines are asked: named batches of token ids, the same in every run."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

PROSE = Path(__file__).resolve().parents[2] / "LICENSE"
"""English that is always at hand; quantised engines go astray on random words."""

SHAPES = {
    "1x32": (32,) * 1,
    "1x128": (128,) * 1,
    "8x128": (128,) * 8,
    "32x128": (128,) * 32,
    "32xragged": tuple(int(length) for length in np.linspace(32, 256, 32)),
    "8x512": (512,) * 8,
    "256x16": (16,) * 256,
}
"""Tokens of each text, special tokens included."""

RAGGED = "32xragged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Padded:
    """A workload for engines without ragged attention: (B, S) int64, padded on the right."""

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]


def num_tokens(workload: str) -> int:
    """Real tokens; padding does not count."""
    return sum(SHAPES[workload])


def token_ids(workload: str, checkpoint: Path) -> tuple[NDArray[np.int64], ...]:
    """Give one (S,) int64 array per text: stretches of English prose between [CLS] and [SEP]."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    prose = tokenizer.encode(PROSE.read_text()).ids
    first, words, last = prose[0], prose[1:-1], prose[-1]
    random = np.random.default_rng(seed=len(SHAPES[workload]))
    texts = []
    for length in random.permutation(SHAPES[workload]):
        start = random.integers(len(words) - length)
        texts.append(np.array([first, *words[start : start + length - 2], last], np.int64))
    return tuple(texts)


def pad(texts: tuple[NDArray[np.int64], ...]) -> Padded:
    """Lay texts into rectangles as long as the longest."""
    shape = (len(texts), max(len(text) for text in texts))
    input_ids, attention_mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, text in enumerate(texts):
        input_ids[row, : len(text)] = text
        attention_mask[row, : len(text)] = 1
    return Padded(
        input_ids=input_ids,
        attention_mask=attention_mask,
        token_type_ids=np.zeros(shape, np.int64),
    )
