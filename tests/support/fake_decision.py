"""Metadata of a decision model that was never compiled. Knows nothing of services or artifacts."""

from infinity_v3.artifacts.decision import (
    LAYA_TEMPLATE,
    AttentionMode,
    Decision,
    DecisionLimits,
    DecisionProtocol,
    Overlong,
    SequencePlan,
    Temperatures,
)


def make_decision(*, max_len: int = 64, head_max_len: int = 40) -> Decision:
    """Laya's protocol over a vocabulary of at least five tokens."""
    return Decision(
        protocol=DecisionProtocol.LAYA,
        template_id=LAYA_TEMPLATE,
        sequence_plan=SequencePlan.PER_QUESTION,
        attention_mode=AttentionMode.BIDIRECTIONAL,
        special_ids={"cls": 1, "sep": 2, "mask": 3, "pad": 0},
        mask_token="[MASK]",
        temperature=Temperatures(
            by_type=(1.0, 1.0, 1.0),
            by_bucket={"choice:11+": 0.5},
            raw_by_type=(1.0, 1.0, None),
            raw_by_bucket={"choice:11+": 0.1},
        ),
        type_ids={"choice": 0, "score": 1, "noul": 2},
        limits=DecisionLimits(
            max_len=max_len,
            head_max_len=head_max_len,
            option_tokens=48,
            max_questions=64,
            max_options=255,
            max_levels=32,
            max_total_options=512,
            overlong=Overlong.CUT_STATE,
        ),
        readout=(),
        base_model=None,
    )
