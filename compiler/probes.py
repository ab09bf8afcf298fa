"""Inputs that every engine is verified on: lengths at every edge, odd texts, and mixed batches.

Everything is seeded, so that the same checkpoint always meets the same probes. Knows no engine.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from infinity_v3.compiler.tokenizer import open_plain_tokenizer

_SEED = 20_240_229
_EAGER_LIMIT = 2048
_SDPA_LIMIT = 4096
_LONGEST_WORK = 1 << 40
"""Parameters times tokens of the longest probe: minutes, not hours, for models of any size."""
_MIXED_BATCHES = 3
_MIXED_SIZE = 12
_MIXED_TOKENS = 256
"""Longer probes stand in one batch beside a neighbour, shorter ones in many."""
_TEXTS = (
    "",
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "Füße, naïve café, Ελληνικά, русский, 深度学习, 日本語, العربية, हिन्दी, 🙂🚀",
    "e\u0301 \u00e9 \u200b\u00a0 tab\there NUL\x00 end",
    "again and again and " * 12,
    "1234567890 !@#$%^&*()_+-=[]{};':\",./<>? [SEP] <s>",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Token ids of single inputs, and batches as positions in that list.

    Attributes:
        ids: (S,) int64 each, special tokens included.
        types: (S,) int64 token types of each; None = all zeros.
        key_counts: how many leading tokens of each are seen; None = all.
        batches: each a list of positions, run as one packed batch besides every input alone.
        referenced: how many of the leading inputs the reference computes; longer ones are compared
            alone against batched.
        ranked: those among them whose order by likeness is compared.
        readouts: (K,) int64 of each, the tokens that are read; empty where no model reads any.
        temperatures: what the logits of each are divided by; empty as `readouts`.
    """

    ids: tuple[NDArray[np.int64], ...]
    types: tuple[NDArray[np.int64] | None, ...]
    key_counts: tuple[int | None, ...]
    batches: tuple[tuple[int, ...], ...]
    referenced: int
    ranked: range = range(0)
    readouts: tuple[NDArray[np.int64], ...] = ()
    temperatures: tuple[float, ...] = ()

    @property
    def digest(self) -> str:
        """sha256 over lengths, ids, types, key counts, batches and what is read."""
        hasher = hashlib.sha256()
        for row, types in zip(self.ids, self.types, strict=True):
            hasher.update(len(row).to_bytes(8, "little") + row.astype("<i8").tobytes())
            hasher.update(b"" if types is None else types.astype("<i8").tobytes())
        hasher.update(repr((self.key_counts, self.batches)).encode())
        for places in self.readouts:
            hasher.update(len(places).to_bytes(8, "little") + places.astype("<i8").tobytes())
        return hasher.hexdigest()

    def scaled(
        self, rows: Sequence[NDArray[np.float32]], positions: Sequence[int]
    ) -> Sequence[NDArray[np.float32]]:
        """Logits of these inputs as the server would have them to make probabilities of them."""
        if not self.temperatures:
            return rows
        by = self.temperatures
        return [row / np.float32(by[i]) for row, i in zip(rows, positions, strict=True)]


def make_probes(  # noqa: PLR0913 - independent traits
    tokenizer_file: Path,
    *,
    vocab_size: int,
    num_parameters: int,
    max_tokens: int,
    windows: tuple[int, ...] = (),
    avoid: frozenset[int],
    has_token_types: bool = False,
    has_key_counts: bool = False,
    ranked_texts: Sequence[str] = (),
) -> Probes:
    """Build the probes of one checkpoint.

    Args:
        tokenizer_file: tokenizer.json; texts that it gives ids beyond the table are left out.
        vocab_size: rows of the model's word embedding.
        num_parameters: of the model; bounds the longest probe that no reference computes.
        max_tokens: longest input the artifact takes.
        windows: attention windows of the model, whose neighbours become lengths.
        avoid: ids that random inputs must not hold (padding, which moves positions in RoBERTa-like
            references).
        has_token_types: every other probe gets two token types, as a pair has them.
        has_key_counts: every third probe hides its last tokens from the others.
        ranked_texts: more probes, whose order by likeness is compared.
    """
    rng = np.random.default_rng(_SEED)
    pool = np.setdiff1d(
        np.arange(vocab_size, dtype=np.int64), np.fromiter(avoid, np.int64, len(avoid))
    )
    lengths = _lengths(max_tokens, windows)
    ids = _known_ids(tokenizer_file, _TEXTS, vocab_size, max_tokens)
    ids += [rng.choice(pool, length) for length in lengths]
    ids += [np.full(min(max_tokens, 33), pool[len(pool) // 2])]
    ids += _beginning_alike(rng, pool, ids)
    if max_tokens > _EAGER_LIMIT:
        ids.append(rng.choice(pool, min(max_tokens, _SDPA_LIMIT)))
    first_ranked = len(ids)
    ids += _known_ids(tokenizer_file, ranked_texts, vocab_size, max_tokens)
    referenced = len(ids)
    longest = min(max_tokens, _LONGEST_WORK // num_parameters)
    if longest > _SDPA_LIMIT:
        ids.append(rng.choice(pool, longest))
    return Probes(
        ids=tuple(ids),
        types=tuple(
            _pair_types(row) if has_token_types and i % 2 else None for i, row in enumerate(ids)
        ),
        key_counts=tuple(
            _key_count(len(row), windows) if has_key_counts and i % 3 == 2 else None
            for i, row in enumerate(ids)
        ),
        batches=_batches(rng, ids),
        referenced=referenced,
        ranked=range(first_ranked, referenced),
    )


def _known_ids(
    tokenizer_file: Path, texts: Sequence[str], vocab_size: int, max_tokens: int
) -> list[NDArray[np.int64]]:
    """Ids of the texts that the model has rows for."""
    rows = _text_ids(tokenizer_file, texts, max_tokens)
    return [row for row in rows if row.max() < vocab_size]


def _key_count(length: int, windows: tuple[int, ...]) -> int:
    """Half of the tokens, but no fewer than leave each token one to see inside its window."""
    return max(-(-length // 2), length - min(windows, default=length) + 1)


def _pair_types(row: NDArray[np.int64]) -> NDArray[np.int64]:
    return (np.arange(len(row)) >= len(row) // 2).astype(np.int64)


def _beginning_alike(
    rng: np.random.Generator, pool: NDArray[np.int64], ids: list[NDArray[np.int64]]
) -> list[NDArray[np.int64]]:
    """Inputs that share their first half, and one that another continues, for folded batches."""
    base = next((row for row in ids if 16 <= len(row) <= 64), ids[0])
    half = base[: -(-len(base) // 2)]
    return [half, np.concatenate([half, rng.choice(pool, len(base) - len(half))])]


def _lengths(max_tokens: int, windows: tuple[int, ...]) -> list[int]:
    top = min(max_tokens, _EAGER_LIMIT)
    lengths = {1, 2, 3, top, *(1 << k for k in range(12))}
    for window in windows:
        lengths |= {window - 1, window, window + 1}
    return sorted(length for length in lengths if 1 <= length <= top)


def _text_ids(
    tokenizer_file: Path, texts: Sequence[str], max_tokens: int
) -> list[NDArray[np.int64]]:
    tokenizer = open_plain_tokenizer(tokenizer_file)
    encoded = [
        np.asarray(tokenizer.encode(text).ids[:max_tokens], dtype=np.int64) for text in texts
    ]
    return [ids for ids in encoded if len(ids)]


def _batches(rng: np.random.Generator, ids: list[NDArray[np.int64]]) -> tuple[tuple[int, ...], ...]:
    """Random mixes of what is not long, neighbours in pairs, and all short inputs together."""
    mixed = [i for i, row in enumerate(ids) if len(row) <= _MIXED_TOKENS]
    mixes = [tuple(int(i) for i in rng.choice(mixed, _MIXED_SIZE)) for _ in range(_MIXED_BATCHES)]
    pairs = [(i, (i + 1) % len(ids)) for i in range(0, len(ids), 2)]
    short = tuple(i for i, row in enumerate(ids) if len(row) <= 64)
    return (*mixes, *pairs, short)
