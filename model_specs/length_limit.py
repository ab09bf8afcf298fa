"""The longest input of a checkpoint in tokens, and where its positions start. Counts nothing."""

from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import LengthRule
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.registry import pad_token_id
from infinity_v3.model_specs.spec import ModelSpec

OPTION = "--max-sequence-length"


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
    rule, warnings = _stated_rule(config, rows - offset)
    if override is not None:
        warnings = _override_warnings(rule, override)
        rule = _checked_override(config, rows - offset, override)
    _require_room(config, rule)
    return LengthLimit(rule=rule, position_offset=offset, position_rows=rows, warnings=warnings)


def position_offset(config: HubConfig, spec: ModelSpec) -> int:
    """Position id of the first token of every input."""
    return pad_token_id(config, spec) + 1 if spec.positions_start_after_padding else 0


def _stated_rule(config: HubConfig, usable: int) -> tuple[LengthRule, tuple[str, ...]]:
    table = LengthRule(max_tokens=usable, source=_relative(config, "config.json"))
    sentence = config.sentence
    if sentence is None or sentence.max_seq_length is None:
        return _unstated_rule(config, table)
    source = _relative(config, sentence.file.name)
    if sentence.max_seq_length > usable:
        return table, (
            f"{source}: max_seq_length {sentence.max_seq_length} is beyond the {usable} positions "
            f"that an input can use; {usable} counts",
        )
    return LengthRule(max_tokens=sentence.max_seq_length, source=source), ()


def _unstated_rule(config: HubConfig, table: LengthRule) -> tuple[LengthRule, tuple[str, ...]]:
    """The tokenizer's limit counts where sentence-transformers, too, would take it."""
    length = config.tokenizer.model_max_length
    if length is None or length >= table.max_tokens:
        return table, ()
    if config.modules is not None:
        source = _relative(config, "tokenizer_config.json")
        return LengthRule(max_tokens=length, source=source), ()
    return table, (
        f"tokenizer_config.json: model_max_length {length} does not limit the input, "
        f"{table.max_tokens} positions do; keep to it with {OPTION} {length}",
    )


def _override_warnings(stated: LengthRule, override: int) -> tuple[str, ...]:
    if override <= stated.max_tokens:
        return ()
    return (
        f"{OPTION} {override} is more than the {stated.max_tokens} tokens of {stated.source}: "
        "the model may not have been trained on such lengths",
    )


def _checked_override(config: HubConfig, usable: int, override: int) -> LengthRule:
    least = config.tokenizer.num_special_tokens + 1
    if not least <= override <= usable:
        raise UsageError(
            f"{OPTION}: expected {least} to {usable} (special tokens and one more, up to the "
            f"position table), found {override}"
        )
    return LengthRule(max_tokens=override, source=OPTION)


def _require_room(config: HubConfig, rule: LengthRule) -> None:
    least = config.tokenizer.num_special_tokens + 1
    if rule.max_tokens < least:
        raise UsageError(
            f"{config.path}: {rule.source}: expected room for at least {least} tokens of one "
            f"input, found {max(rule.max_tokens, 0)}"
        )


def _relative(config: HubConfig, name: str) -> str:
    return (config.encoder_path / name).relative_to(config.path).as_posix()
