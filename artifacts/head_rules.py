"""What the heads of a manifest must also satisfy, so that post-processing can rely on them.

Each function refuses with the path of the key at fault. Does no I/O.
"""

from itertools import pairwise

from infinity_v3.artifacts.manifest import Graph, Heads, LateInteraction, Manifest
from infinity_v3.artifacts.typed_json import Location, show
from infinity_v3.artifacts.value_rules import check_at_least

_LOGITS = ("logits", "token_logits")
_IDS = ("query_prefix_id", "document_prefix_id", "query_expansion_id")
_LENGTHS = ("query_length", "document_length")


def check_heads(manifest: Manifest, at: Location) -> None:
    """Refuse heads that do not fit together, or not the vocabulary or the graph.

    Raises:
        RefusedError: names the first key that breaks a rule.
    """
    heads = manifest.heads
    if heads.pooling is not None and not heads.pooling.modes:
        raise at.key("pooling").key("modes").refuse("expected at least one mode, found none")
    if heads.dimensions is not None:
        check_at_least(1, heads.dimensions, at.key("dimensions"))
    _check_labels(heads, manifest.graph, at)
    if heads.late_interaction is not None:
        where = at.key("late_interaction")
        _check_late_interaction(heads.late_interaction, manifest.model.vocab_size, where)


def _check_labels(heads: Heads, graph: Graph, at: Location) -> None:
    found = len(heads.labels)
    for output in graph.outputs:
        expected = output.dims[-1] if output.name in _LOGITS and output.dims else found
        if heads.labels and found != expected:
            raise at.key("labels").refuse(
                f"expected {show(expected)}, one for each of {show(output.name)}, found {found}"
            )
    if heads.opposite_label is not None and found != 1:
        raise at.key("opposite_label").refuse(
            f"expected one label that it is the opposite of, found {found}"
        )


def _check_late_interaction(rules: LateInteraction, vocab_size: int, at: Location) -> None:
    for key in _IDS:
        number: int | None = getattr(rules, key)
        if number is not None:
            _check_id(number, vocab_size, at.key(key))
    for key in _LENGTHS:
        length: int | None = getattr(rules, key)
        if length is not None:
            check_at_least(1, length, at.key(key))
    _check_skipped(rules.skipped_ids, vocab_size, at.key("skipped_ids"))


def _check_skipped(ids: tuple[int, ...], vocab_size: int, at: Location) -> None:
    for index, number in enumerate(ids):
        _check_id(number, vocab_size, at.item(index))
    for index, (before, number) in enumerate(pairwise(ids), start=1):
        if number <= before:
            raise at.item(index).refuse(f"expected ascending ids, found {number} after {before}")


def _check_id(number: int, vocab_size: int, at: Location) -> None:
    if not 0 <= number < vocab_size:
        raise at.refuse(f"expected a token id from 0 to {vocab_size - 1}, found {number}")
