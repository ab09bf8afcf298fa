"""The longest input of a checkpoint in tokens, and where its positions start. Counts nothing."""

from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import LengthRule
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.late_interaction_config import LateInteractionConfig
from infinity_v3.model_specs.laya_config import LayaConfig
from infinity_v3.model_specs.registry import pad_token_id
from infinity_v3.model_specs.spec import ModelSpec

OPTION = "--max-sequence-length"
MOST_TOKENS = 32768
"""Tokens of a batch that engines are compiled for; no input is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthLimit:
    """The limit and what bounds it.

    Attributes:
        rule: longest input in tokens, special tokens included, and the file or option that said so.
        position_offset: position id of an input's first token.
        position_rows: rows of the position table; no position id reaches it.
        warnings: sentences for the user, in order.
    """

    rule: LengthRule
    position_offset: int
    position_rows: int
    warnings: tuple[str, ...]


def length_limit(config: HubConfig, spec: ModelSpec, override: int | None = None) -> LengthLimit:
    """Work out the limit of a checkpoint.

    Args:
        config: the checkpoint.
        spec: its family.
        override: what the user asked for, up to the rows of the position table that inputs can use.

    Raises:
        UsageError: the position table leaves no room for a text, or the override does not fit.
    """
    offset = position_offset(config, spec)
    rows = config.model.max_position_embeddings
    room = _room(config, rows - offset)
    rule, warnings = _stated_rule(config, room)
    if config.decision is not None:
        rule, warnings = _decision_rule(config.decision, room)
    if config.late_interaction is not None:
        rule, warnings = _longest_side(config, config.late_interaction, rule, warnings, room)
    if override is not None:
        warnings = _override_warnings(rule, override)
        rule = _checked_override(config, room, override)
    _require_room(config, rule)
    return LengthLimit(rule=rule, position_offset=offset, position_rows=rows, warnings=warnings)


def side_limits(config: HubConfig, spec: ModelSpec) -> tuple[int, int]:
    """Longest query and longest document of a late-interaction model, in tokens."""
    late = config.late_interaction
    usable = config.model.max_position_embeddings - position_offset(config, spec)
    room = _room(config, usable)
    text = _stated_rule(config, room)[0].max_tokens
    stated = (None, None) if late is None else (late.longest_query, late.document_length)
    query, document = (min(length or text, room.max_tokens) for length in stated)
    return query, document


def position_offset(config: HubConfig, spec: ModelSpec) -> int:
    """Position id of the first token of every input."""
    return pad_token_id(config, spec) + 1 if spec.positions_start_after_padding else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """Tokens of an input at most, whatever the checkpoint says, and why."""

    max_tokens: int
    source: str
    reason: str


def _room(config: HubConfig, usable: int) -> _Room:
    source = _relative(config, "config.json")
    if usable <= MOST_TOKENS:
        return _Room(
            max_tokens=usable,
            source=source,
            reason=f"the {usable} positions that an input can use",
        )
    return _Room(
        max_tokens=MOST_TOKENS, source=source, reason=f"the {MOST_TOKENS} tokens of a batch"
    )


def _stated_rule(config: HubConfig, room: _Room) -> tuple[LengthRule, tuple[str, ...]]:
    table = LengthRule(max_tokens=room.max_tokens, source=room.source)
    sentence = config.sentence
    if sentence is None or sentence.max_seq_length is None:
        return _unstated_rule(config, table, room)
    source = _relative(config, sentence.file.name)
    if sentence.max_seq_length > room.max_tokens:
        return table, (_beyond(f"{source}: max_seq_length", sentence.max_seq_length, room),)
    return LengthRule(max_tokens=sentence.max_seq_length, source=source), ()


def _unstated_rule(
    config: HubConfig, table: LengthRule, room: _Room
) -> tuple[LengthRule, tuple[str, ...]]:
    """The tokenizer's limit counts where sentence-transformers, too, would take it."""
    length = config.tokenizer.model_max_length
    if length is None or length >= table.max_tokens:
        positions = config.model.max_position_embeddings
        name = f"{table.source}: max_position_embeddings"
        is_cut = table.max_tokens == MOST_TOKENS < positions and length != MOST_TOKENS
        return table, (_beyond(name, positions, room),) if is_cut else ()
    if config.modules is not None or config.late_interaction is not None:
        source = _relative(config, "tokenizer_config.json")
        return LengthRule(max_tokens=length, source=source), ()
    return table, (
        f"tokenizer_config.json: model_max_length {length} does not limit the input, "
        f"{table.max_tokens} positions do; keep to it with {OPTION} {length}",
    )


def _decision_rule(decision: LayaConfig, room: _Room) -> tuple[LengthRule, tuple[str, ...]]:
    if decision.max_len > room.max_tokens:
        raise UsageError(
            f"{decision.file}: max_len: expected at most {room.max_tokens}, {room.reason}, found "
            f"{decision.max_len}; take the file and the encoder from one checkpoint"
        )
    return LengthRule(max_tokens=decision.max_len, source=decision.file.name), ()


def _longest_side(
    config: HubConfig,
    late: LateInteractionConfig,
    text: LengthRule,
    warnings: tuple[str, ...],
    room: _Room,
) -> tuple[LengthRule, tuple[str, ...]]:
    """A query or a document may be longer than other texts, or both be shorter."""
    sides = (late.longest_query, late.document_length)
    longest = max(length or text.max_tokens for length in sides)
    source = late.files[0].relative_to(config.path).as_posix()
    if longest > room.max_tokens:
        rule = LengthRule(max_tokens=room.max_tokens, source=room.source)
        return rule, (_beyond(f"{source}: the longest query or document,", longest, room),)
    if longest == text.max_tokens:
        return text, warnings
    return LengthRule(max_tokens=longest, source=source), ()


def _beyond(name: str, length: int, room: _Room) -> str:
    return f"{name} {length} is beyond {room.reason}; {room.max_tokens} counts"


def _override_warnings(stated: LengthRule, override: int) -> tuple[str, ...]:
    if override <= stated.max_tokens:
        return ()
    return (
        f"{OPTION} {override} is more than the {stated.max_tokens} tokens of {stated.source}: "
        "the model may not have been trained on such lengths",
    )


def _checked_override(config: HubConfig, room: _Room, override: int) -> LengthRule:
    least = config.tokenizer.num_special_tokens + 1
    if config.decision is not None:
        least = config.decision.head_max_len + 1
    if not least <= override <= room.max_tokens:
        raise UsageError(
            f"{OPTION}: expected {least} to {room.max_tokens} ({_least_reason(config)}, up to "
            f"{room.reason}), found {override}"
        )
    return LengthRule(max_tokens=override, source=OPTION)


def _least_reason(config: HubConfig) -> str:
    return "special tokens and one more" if config.decision is None else "more than head_max_len"


def _require_room(config: HubConfig, rule: LengthRule) -> None:
    least = config.tokenizer.num_special_tokens + 1
    if rule.max_tokens < least:
        raise UsageError(
            f"{config.path}: {rule.source}: expected room for at least {least} tokens of one "
            f"input, found {max(rule.max_tokens, 0)}"
        )


def _relative(config: HubConfig, name: str) -> str:
    return (config.encoder_path / name).relative_to(config.path).as_posix()
