"""The inputs that every engine is verified on."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from tokenizers import Tokenizer

from infinity_v3.compiler.probes import Probes, make_probes
from tiny_checkpoints import FAMILIES
from tiny_tokenizers import build_tokenizer

T = TypeVar("T")
NUM_PARAMETERS = 1_000_000
VOCAB_SIZE = 200


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tokenizer("bert", tmp_path_factory.mktemp("tokenizer"))


def save_tokenizer(family: str, folder: Path) -> Path:
    path = folder / "tokenizer.json"
    build_tokenizer(family).backend.save(str(path))
    return path


def probes_of(path: Path, max_tokens: int, *, windows: tuple[int, ...] = ()) -> Probes:
    return make_probes(
        path,
        vocab_size=VOCAB_SIZE,
        num_parameters=NUM_PARAMETERS,
        max_tokens=max_tokens,
        windows=windows,
        avoid=frozenset({0}),
    )


def test_texts_with_ids_beyond_the_table_are_left_out(tokenizer_file: Path) -> None:
    special = Tokenizer.from_file(str(tokenizer_file)).encode("").ids
    size = max(special) + 1
    probes = make_probes(
        tokenizer_file,
        vocab_size=size,
        num_parameters=NUM_PARAMETERS,
        max_tokens=16,
        avoid=frozenset(),
    )
    assert max(int(ids.max()) for ids in probes.ids) < size
    assert probes.ids[0].tolist() == special


def lengths_of(probes: Probes) -> list[int]:
    return [len(ids) for ids in probes.ids]


def test_the_same_checkpoint_meets_the_same_probes(tokenizer_file: Path) -> None:
    first, second = probes_of(tokenizer_file, 512), probes_of(tokenizer_file, 512)
    assert first.digest == second.digest
    assert all(np.array_equal(a, b) for a, b in zip(first.ids, second.ids, strict=True))
    assert first.batches == second.batches


def test_the_digest_covers_all_that_is_run(tokenizer_file: Path) -> None:
    probes = probes_of(tokenizer_file, 64)
    changed = [ids.copy() for ids in probes.ids]
    changed[3][0] += 1
    cut = [probes.ids[0][:-1], *probes.ids[1:]]
    zeros = np.zeros_like(probes.ids[2])
    others = [
        replace(probes, ids=tuple(changed)),
        replace(probes, ids=tuple(cut)),
        replace(probes, types=with_one(probes.types, zeros + 1)),
        replace(probes, types=with_one(probes.types, zeros + 2)),
        replace(probes, key_counts=with_one(probes.key_counts, 1)),
        replace(probes, key_counts=with_one(probes.key_counts, 2)),
        replace(probes, batches=probes.batches[1:]),
        probes_of(tokenizer_file, 63),
    ]
    assert len({probes.digest, *(other.digest for other in others)}) == len(others) + 1


def with_one(values: tuple[T, ...], value: T) -> tuple[T, ...]:
    """The same with another third value."""
    return (*values[:2], value, *values[3:])


def test_types_are_those_of_pairs_in_every_other_probe(tokenizer_file: Path) -> None:
    plain = probes_of(tokenizer_file, 64)
    assert set(plain.types) == {None}
    typed = make_probes(
        tokenizer_file,
        vocab_size=VOCAB_SIZE,
        num_parameters=NUM_PARAMETERS,
        max_tokens=64,
        avoid=frozenset({0}),
        has_token_types=True,
    )
    assert all(np.array_equal(a, b) for a, b in zip(plain.ids, typed.ids, strict=True))
    assert typed.digest != plain.digest
    for position, (ids, types) in enumerate(zip(typed.ids, typed.types, strict=True)):
        assert (types is None) == (position % 2 == 0)
        if types is not None:
            assert types.shape == ids.shape
            assert types.tolist() == sorted(types.tolist())
            assert set(types.tolist()) == ({0, 1} if len(ids) > 1 else {1})


def test_every_third_probe_hides_its_last_tokens(tokenizer_file: Path) -> None:
    plain = probes_of(tokenizer_file, 64)
    assert set(plain.key_counts) == {None}
    hiding = make_probes(
        tokenizer_file,
        vocab_size=VOCAB_SIZE,
        num_parameters=NUM_PARAMETERS,
        max_tokens=64,
        avoid=frozenset({0}),
        has_key_counts=True,
    )
    hidden = 0
    for position, (ids, count) in enumerate(zip(hiding.ids, hiding.key_counts, strict=True)):
        assert (count is None) == (position % 3 != 2)
        if count is not None:
            assert 1 <= count <= len(ids)
            hidden += count < len(ids)
    assert hidden >= 3


@pytest.mark.parametrize("max_tokens", [3, 8, 100, 512, 2048])
def test_lengths_stand_at_every_edge(tokenizer_file: Path, max_tokens: int) -> None:
    probes = probes_of(tokenizer_file, max_tokens)
    found = lengths_of(probes)
    powers = {1 << k for k in range(12) if 1 << k <= max_tokens}
    assert {1, 2, max_tokens} | powers <= set(found)
    assert max(found) == max_tokens
    assert min(found) == 1
    assert probes.referenced == len(found)


def test_windows_have_their_neighbours(tokenizer_file: Path) -> None:
    found = lengths_of(probes_of(tokenizer_file, 512, windows=(100, 300, 512)))
    assert {99, 100, 101, 299, 300, 301, 511, 512} <= set(found)
    assert max(found) == 512


def test_beyond_the_reach_of_the_reference(tokenizer_file: Path) -> None:
    middle = probes_of(tokenizer_file, 3000)
    assert sorted(lengths_of(middle))[-2:] == [2048, 3000]
    assert middle.referenced == len(middle.ids)
    long = probes_of(tokenizer_file, 8192)
    assert lengths_of(long)[-2:] == [4096, 8192]
    assert long.referenced == len(long.ids) - 1


def test_no_random_id_is_one_to_avoid(tokenizer_file: Path) -> None:
    avoid = frozenset({0, 7, VOCAB_SIZE - 1})
    probes = make_probes(
        tokenizer_file,
        vocab_size=VOCAB_SIZE,
        num_parameters=NUM_PARAMETERS,
        max_tokens=512,
        avoid=avoid,
    )
    num_texts = len(texts_of(probes))
    drawn = np.concatenate(probes.ids[num_texts:])
    assert not avoid & set(drawn.tolist())
    assert drawn.min() >= 0
    assert drawn.max() < VOCAB_SIZE
    # Nearly all that may be drawn are.
    assert len(set(drawn.tolist())) > 0.9 * (VOCAB_SIZE - len(avoid))


def texts_of(probes: Probes) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The leading probes, which are tokenised texts: the first drawn one has a single token."""
    first_drawn = lengths_of(probes).index(1)
    return [*probes.ids[:first_drawn]]


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_tokenised_as_the_checkpoint_does(family: str, tmp_path: Path) -> None:
    path = save_tokenizer(family, tmp_path)
    tokenizer = Tokenizer.from_file(str(path))
    probes = make_probes(
        path,
        vocab_size=tokenizer.get_vocab_size(),
        num_parameters=NUM_PARAMETERS,
        max_tokens=128,
        avoid=frozenset(),
    )
    texts = [ids.tolist() for ids in texts_of(probes)]
    for text in ("", "a", "The quick brown fox jumps over the lazy dog."):
        assert tokenizer.encode(text).ids in texts
    assert max(len(ids) for ids in texts) <= 128
    assert max(max(ids) for ids in texts) < tokenizer.get_vocab_size()
    assert len(texts) >= 6


def test_truncation_and_padding_of_the_file_do_not_count(tmp_path: Path) -> None:
    backend = build_tokenizer("bert").backend
    plain = save_tokenizer("bert", tmp_path)
    backend.enable_truncation(4)
    backend.enable_padding(length=40)
    backend.save(str(tmp_path / "odd.json"))
    assert probes_of(tmp_path / "odd.json", 64).digest == probes_of(plain, 64).digest


def test_a_repeated_token_is_among_the_probes(tokenizer_file: Path) -> None:
    probes = probes_of(tokenizer_file, 512)
    assert any(len(ids) == 33 and len(set(ids.tolist())) == 1 for ids in probes.ids)


@pytest.mark.parametrize("max_tokens", [3, 64, 512])
def test_every_probe_is_in_a_batch_and_batches_are_mixed(
    tokenizer_file: Path, max_tokens: int
) -> None:
    probes = probes_of(tokenizer_file, max_tokens)
    members = [position for batch in probes.batches for position in batch]
    assert set(members) == set(range(len(probes.ids)))
    assert all(len(batch) >= 2 for batch in probes.batches)
    spans = [{len(probes.ids[position]) for position in batch} for batch in probes.batches]
    assert max(len(span) for span in spans) >= 3
