"""Keeps a bad batch away from native code, which would read out of bounds.

Knows nothing of engines.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.decision import QuestionType
from infinity_v3.artifacts.manifest import Limits, ModelFacts
from infinity_v3.runtime.batch import KEY_COUNTS_INPUT, READOUTS_INPUT, ROWS_INPUT, Batch
from infinity_v3.runtime.engine_errors import EngineError

Check = tuple[bool, str]


def check_bounds(
    batch: Batch, facts: ModelFacts, limits: Limits, input_names: AbstractSet[str]
) -> None:
    """Refuse what native code would read out of bounds.

    Args:
        batch: as it came; each of its arrays one-dimensional.
        facts: of the model.
        limits: of the target.
        input_names: what the graph reads.

    Raises:
        EngineError: naming the bound.
    """
    # One after another: later checks rely on what earlier ones have found to hold.
    for checks in (
        _check_sizes(batch, limits, reads_rows=ROWS_INPUT in input_names),
        _check_values(batch, facts, _last_type(input_names)),
        _check_rows(batch) if ROWS_INPUT in input_names else (),
        _check_key_counts(batch) if KEY_COUNTS_INPUT in input_names else (),
        _check_readouts(batch) if READOUTS_INPUT in input_names else (),
    ):
        _refuse_first_failure(checks)


def _last_type(input_names: AbstractSet[str]) -> int:
    """Tokens of a pair have two types, those of a question one of three."""
    return len(QuestionType) - 1 if READOUTS_INPUT in input_names else 1


def _refuse_first_failure(checks: Iterable[Check]) -> None:
    for holds, reason in checks:
        if not holds:
            raise EngineError(f"the batch was refused before the engine ran: {reason}")


def _check_sizes(batch: Batch, limits: Limits, *, reads_rows: bool) -> Iterator[Check]:
    bounds = batch.cu_seqlens
    num_stored, num_tokens = batch.num_stored_tokens, int(bounds[-1])
    sizes = {array.shape for array in (batch.input_ids, batch.position_ids, batch.token_type_ids)}
    yield (
        sizes == {(num_stored,)}
        and (len(batch.rows) if reads_rows else num_stored) == num_tokens
        and bounds[0] == 0,
        "its arrays differ in length",
    )
    yield len(bounds) > 1 and bool((bounds[1:] > bounds[:-1]).all()), "a sequence is empty"
    yield (
        num_tokens <= limits.max_tokens,
        f"{num_tokens} tokens, the engine takes {limits.max_tokens}",
    )
    yield (
        batch.num_sequences <= limits.max_sequences,
        f"{batch.num_sequences} sequences, the engine takes {limits.max_sequences}",
    )


def _check_values(batch: Batch, facts: ModelFacts, last_type: int) -> Iterator[Check]:
    last_id = facts.vocab_size - 1
    last_position = facts.position_offset + facts.max_input_tokens - 1
    yield _within(batch.input_ids, last_id), f"a token id lies outside 0..{last_id}"
    yield (
        _within(batch.position_ids, last_position),
        f"a position lies outside 0..{last_position}",
    )
    yield _within(batch.token_type_ids, last_type), f"a token type lies outside 0..{last_type}"


def _check_rows(batch: Batch) -> Iterator[Check]:
    """See `Batch.rows`. The sizes have been checked."""
    rows = batch.rows
    highest = np.maximum.accumulate(rows)
    is_own = np.empty(len(rows), dtype=np.bool_)
    is_own[0] = rows[0] == 0
    np.equal(rows[1:], highest[:-1] + 1, out=is_own[1:])
    is_known = rows >= 0
    is_known[1:] &= rows[1:] <= highest[:-1] + 1
    yield (
        bool(is_own[0] and is_known.all()) and highest[-1] == batch.num_stored_tokens - 1,
        "its rows are not those of its stored tokens",
    )
    is_first = np.zeros(len(rows), dtype=np.bool_)
    is_first[batch.cu_seqlens[:-1]] = True
    # Once a sequence has a token of its own, all that follow are its own, up to the last one.
    goes_on = is_own[1:] | ~is_own[:-1] | is_first[1:]
    yield (
        bool(goes_on.all() and is_own[batch.cu_seqlens[1:] - 1].all()),
        "a sequence shares tokens that are not its first ones",
    )


def _check_key_counts(batch: Batch) -> Iterator[Check]:
    counts = batch.key_counts
    yield len(counts) == batch.num_sequences, "its key counts are not one per sequence"
    yield (
        bool((counts >= 1).all() and (counts <= np.diff(batch.cu_seqlens)).all()),
        "a key count lies outside 1..length",
    )


def _check_readouts(batch: Batch) -> Iterator[Check]:
    positions, bounds = batch.readout_positions, batch.readout_bounds
    counts = np.diff(bounds)
    yield (
        len(counts) == batch.num_sequences and bounds[0] == 0 and bounds[-1] == len(positions),
        "its readout positions are not shared out among its sequences",
    )
    yield bool((counts >= 0).all()), "a sequence has fewer than no readout positions"
    starts, stops = (
        np.repeat(edge, counts) for edge in (batch.cu_seqlens[:-1], batch.cu_seqlens[1:])
    )
    yield (
        bool(((positions >= starts) & (positions < stops)).all()),
        "a readout position lies outside its sequence",
    )


def _within(array: NDArray[np.int64], last: int) -> bool:
    return bool(array.size) and int(array.min()) >= 0 and int(array.max()) <= last
