"""What an artifact records of a decision checkpoint, read off its files. Loads no weights."""

from collections.abc import Mapping

from infinity_v3.artifacts.decision import (
    LAYA_SPECIALS,
    LAYA_TEMPLATE,
    AttentionMode,
    Decision,
    DecisionLimits,
    DecisionProtocol,
    Overlong,
    QuestionType,
    ReadoutTensor,
    SequencePlan,
)
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.checkpoint import Checkpoint
from infinity_v3.compiler.tokenizer import open_tokenizer
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.laya_config import LayaConfig

ENCODER_PREFIX = "encoder."
_OPTION_TOKENS = 48
_MAX_QUESTIONS, _MAX_TOTAL_OPTIONS = 64, 512
_MAX_OPTIONS, _MAX_LEVELS = 255, 32
_NOT_READ = ("act_head.", "temperature")
"""Tensors of a checkpoint that no answer depends on."""


def decision_of(config: HubConfig, checkpoint: Checkpoint, max_tokens: int) -> Decision | None:
    """The metadata of a decision checkpoint; None for any other.

    Args:
        config: the checkpoint's files.
        checkpoint: its tensors.
        max_tokens: longest sequence of the artifact.

    Raises:
        UsageError: the tokenizer lacks a token that the protocol needs.
    """
    if config.decision is None:
        return None
    return _laya(config, config.decision, checkpoint, max_tokens)


def _laya(
    config: HubConfig, stated: LayaConfig, checkpoint: Checkpoint, max_tokens: int
) -> Decision:
    specials = _special_ids(config)
    return Decision(
        protocol=DecisionProtocol.LAYA,
        template_id=LAYA_TEMPLATE,
        sequence_plan=SequencePlan.PER_QUESTION,
        attention_mode=AttentionMode.BIDIRECTIONAL,
        special_ids=specials,
        mask_token=config.tokenizer.special_tokens["mask_token"],
        temperature=stated.temperature,
        type_ids={kind.value: row for row, kind in enumerate(QuestionType)},
        limits=DecisionLimits(
            max_len=max_tokens,
            head_max_len=stated.head_max_len,
            option_tokens=_OPTION_TOKENS,
            max_questions=_MAX_QUESTIONS,
            max_options=_MAX_OPTIONS,
            max_levels=_MAX_LEVELS,
            max_total_options=_MAX_TOTAL_OPTIONS,
            overlong=Overlong.CUT_STATE,
        ),
        readout=tuple(
            ReadoutTensor(name=name, dtype=tensor.dtype, shape=tensor.shape)
            for name, tensor in sorted(checkpoint.tensors.items())
            if not name.startswith((ENCODER_PREFIX, *_NOT_READ))
        ),
        base_model=stated.base_model,
    )


def _special_ids(config: HubConfig) -> Mapping[str, int]:
    file = config.tokenizer.tokenizer
    tokenizer = open_tokenizer(file)
    ids = {}
    for role in LAYA_SPECIALS:
        spelling = config.tokenizer.special_tokens.get(f"{role}_token")
        found = None if spelling is None else tokenizer.token_to_id(spelling)
        if found is None or found >= config.model.vocab_size:
            raise UsageError(
                f"{file}: expected a {role} token below vocab_size {config.model.vocab_size}, "
                f"found {'none' if found is None else found}; take tokenizer and encoder from one "
                "checkpoint"
            )
        ids[role] = found
    return ids
