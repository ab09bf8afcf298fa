"""What of a manifest's decision metadata a reader refuses, naming the key."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fake_artifact import make_manifest
from fake_decision import make_decision
from infinity_v3.artifacts.codec import decode_manifest, encode_manifest
from infinity_v3.artifacts.decision import (
    AttentionMode,
    Decision,
    DecisionProtocol,
    Overlong,
    QuestionType,
    SequencePlan,
    bucket_of,
)
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import Kind

Change = Callable[[Decision], Decision]


def limits(**changes: object) -> Change:
    return lambda d: replace(d, limits=replace(d.limits, **changes))  # type: ignore[arg-type]


def temperature(**changes: object) -> Change:
    return lambda d: replace(d, temperature=replace(d.temperature, **changes))  # type: ignore[arg-type]


WRONG: dict[str, Change] = {
    "decision.protocol: expected one of laya": lambda d: replace(
        d, protocol=DecisionProtocol.ONEJEV
    ),
    "decision.template_id: expected one of laya-sequence-1": lambda d: replace(d, template_id="x"),
    "decision.sequence_plan: expected one of": lambda d: replace(
        d, sequence_plan=SequencePlan.JOINT
    ),
    "decision.attention_mode: expected one of": lambda d: replace(
        d, attention_mode=AttentionMode.CAUSAL
    ),
    "decision.mask_token: expected a token's text": lambda d: replace(d, mask_token=""),
    "decision.special_ids: expected the keys": lambda d: replace(d, special_ids={"cls": 1}),
    "decision.special_ids.mask: expected 0 to 99, found 100": lambda d: replace(
        d, special_ids={**d.special_ids, "mask": 100}
    ),
    "decision.type_ids.noul: expected 0 to 2, found 3": lambda d: replace(
        d, type_ids={**d.type_ids, "noul": 3}
    ),
    "decision.temperature.by_type: expected 3 numbers": temperature(by_type=(1.0,)),
    "decision.temperature.by_type[2]: expected 0.5 to 5.0, found 0.1": temperature(
        by_type=(1.0, 1.0, 0.1)
    ),
    "decision.temperature.raw_by_type: expected 3 numbers": temperature(raw_by_type=()),
    "decision.temperature.by_bucket: expected one of": temperature(by_bucket={"choice:7": 1.0}),
    "decision.limits.max_questions: expected at least 1": limits(max_questions=0),
    "decision.limits.head_max_len: expected at least 16": limits(head_max_len=15),
    "decision.limits.max_len: expected above head_max_len": limits(max_len=40),
    "at most 64, the model's longest input, found 65": limits(max_len=65),
    "decision.limits.overlong: expected one of cut_state": limits(overlong=Overlong.SPLIT),
}


def test_metadata_survives_writing_and_reading() -> None:
    manifest = make_manifest(kind=Kind.DECISION, decision=make_decision())
    assert decode_manifest(encode_manifest(manifest)).decision == manifest.decision


@pytest.mark.parametrize("message", WRONG)
def test_wrong_metadata_is_refused_by_name(message: str) -> None:
    manifest = make_manifest(kind=Kind.DECISION, decision=WRONG[message](make_decision()))
    with pytest.raises(RefusedError) as refusal:
        encode_manifest(manifest)
    assert message in str(refusal.value)


def test_other_kinds_have_none() -> None:
    with pytest.raises(RefusedError, match="expected null for kind embedding"):
        encode_manifest(make_manifest(decision=make_decision()))


def test_the_number_of_options_decides_between_temperatures() -> None:
    found = make_decision().temperature
    assert found.of(QuestionType.CHOICE, 11) == 0.5
    assert found.of(QuestionType.CHOICE, 10) == 1.0
    assert [bucket_of(k) for k in (1, 2, 3, 5, 6, 10, 11)] == [
        *("2", "2", "3-5", "3-5", "6-10", "6-10", "11+")
    ]
