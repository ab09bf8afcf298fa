"""What the manifest says of a typed-decision model, so that a server needs no checkpoint file.

Owns names, types and bounds of the manifest's `decision` key. Knows nothing of prompts or tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from infinity_v3.artifacts.typed_json import Location, show
from infinity_v3.artifacts.value_rules import check_at_least, check_choice

MIN_TEMPERATURE = 0.5
MAX_TEMPERATURE = 5.0
"""Laya's own bounds of a temperature that is applied."""
LAYA_TEMPLATE = "laya-sequence-1"
LAYA_SPECIALS = ("cls", "sep", "mask", "pad")
LAYA_MIN_HEAD = 16
LAYA_BUCKETS = ("2", "3-5", "6-10", "11+")


class DecisionProtocol(str, Enum):
    """How a checkpoint is asked and how its answer is read."""

    LAYA = "laya"
    ONEJEV = "onejev"
    PPLX = "pplx"
    RUNE = "rune"
    CLEF = "clef"
    D3 = "d3"


class QuestionType(str, Enum):
    """What a question asks for.

    Attributes:
        CHOICE: one of several named options.
        SCORE: a level of a scale.
        NOUL: whether a statement holds.
    """

    CHOICE = "choice"
    SCORE = "score"
    NOUL = "noul"


class SequencePlan(str, Enum):
    """How the questions of a request become sequences."""

    PER_QUESTION = "per_question"
    SHARED_PREFIX = "shared_prefix"
    JOINT = "joint"
    JOINT_SPLIT = "joint_split"


class AttentionMode(str, Enum):
    """What a token of a sequence sees."""

    BIDIRECTIONAL = "bidirectional"
    CAUSAL = "causal"
    NONCAUSAL_FULL_ATTENTION = "noncausal_full_attention"
    PREFIX_SUFFIX_BLOCK = "prefix_suffix_block"
    GEMMA_CAUSAL = "gemma_causal"


class Overlong(str, Enum):
    """What happens to a state that does not fit."""

    CUT_STATE = "cut_state"
    REFUSE = "refuse"
    SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLimits:
    """Bounds of one request.

    Attributes:
        max_len: tokens of a whole sequence.
        head_max_len: tokens of the half that holds the question.
        option_tokens: tokens of one option, its marker not counted.
        max_options: of one choice question.
        max_levels: of one score question.
        max_total_options: of all questions.
    """

    max_len: int
    head_max_len: int
    option_tokens: int
    max_questions: int
    max_options: int
    max_levels: int
    max_total_options: int
    overlong: Overlong


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperatures:
    """What logits are divided by; within MIN_TEMPERATURE .. MAX_TEMPERATURE.

    Attributes:
        by_type: of choice, score and noul questions.
        by_bucket: by type and number of options ("choice:11+"), which goes before `by_type`.
        raw_by_type, raw_by_bucket: as the checkpoint states them; None = no finite number.
    """

    by_type: tuple[float, ...]
    by_bucket: Mapping[str, float]
    raw_by_type: tuple[float | None, ...]
    raw_by_bucket: Mapping[str, float | None]

    def of(self, kind: QuestionType, num_options: int) -> float:
        """The temperature of a question."""
        found = self.by_bucket.get(f"{kind.value}:{bucket_of(num_options)}")
        return self.by_type[list(QuestionType).index(kind)] if found is None else found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadoutTensor:
    """A tensor of the checkpoint that turns hidden states into logits; dtype as stored."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The protocol of a decision model and all that it needs at serve time.

    Attributes:
        template_id: the text around state and questions.
        special_ids: token ids by role.
        mask_token: is replaced by a space wherever a request holds it.
        type_ids: row of the type embedding by question type.
        readout: the tensors behind the encoder, in the graph.
        base_model: the encoder that the checkpoint says it was trained from.
    """

    protocol: DecisionProtocol
    template_id: str
    sequence_plan: SequencePlan
    attention_mode: AttentionMode
    special_ids: Mapping[str, int]
    mask_token: str
    temperature: Temperatures
    type_ids: Mapping[str, int]
    limits: DecisionLimits
    readout: tuple[ReadoutTensor, ...]
    base_model: str | None


def bucket_of(num_options: int) -> str:
    """The part of a temperature's key that says how many options there are."""
    if num_options <= 2:
        return "2"
    if num_options <= 5:
        return "3-5"
    return "6-10" if num_options <= 10 else "11+"


def check_decision(decision: Decision, vocab_size: int, max_tokens: int, at: Location) -> None:
    """Refuse metadata that a server could not follow.

    Args:
        decision: of the manifest.
        vocab_size: rows of the word embedding.
        max_tokens: longest input of the model.
        at: where the metadata stands.

    Raises:
        RefusedError: names the first key that breaks a rule.
    """
    check_choice(decision.protocol.value, (DecisionProtocol.LAYA.value,), at.key("protocol"))
    check_choice(decision.template_id, (LAYA_TEMPLATE,), at.key("template_id"))
    check_choice(
        decision.sequence_plan.value, (SequencePlan.PER_QUESTION.value,), at.key("sequence_plan")
    )
    check_choice(
        decision.attention_mode.value,
        (AttentionMode.BIDIRECTIONAL.value,),
        at.key("attention_mode"),
    )
    if not decision.mask_token:
        raise at.key("mask_token").refuse("expected a token's text, found an empty string")
    _check_ids(decision.special_ids, LAYA_SPECIALS, vocab_size, at.key("special_ids"))
    types = tuple(kind.value for kind in QuestionType)
    _check_ids(decision.type_ids, types, len(types), at.key("type_ids"))
    _check_temperatures(decision.temperature, at.key("temperature"))
    _check_limits(decision.limits, max_tokens, at.key("limits"))


def _check_ids(
    found: Mapping[str, int], names: tuple[str, ...], num_rows: int, at: Location
) -> None:
    if sorted(found) != sorted(names):
        raise at.refuse(f"expected the keys {', '.join(names)}; found {', '.join(sorted(found))}")
    for name, number in found.items():
        if not 0 <= number < num_rows:
            raise at.key(name).refuse(f"expected 0 to {num_rows - 1}, found {show(number)}")


def _check_temperatures(found: Temperatures, at: Location) -> None:
    count = len(QuestionType)
    for key, values in (("by_type", found.by_type), ("raw_by_type", found.raw_by_type)):
        if len(values) != count:
            raise at.key(key).refuse(f"expected {count} numbers, found {len(values)}")
    for index, value in enumerate(found.by_type):
        _check_temperature(value, at.key("by_type").item(index))
    known = [f"{kind.value}:{bucket}" for kind in QuestionType for bucket in LAYA_BUCKETS]
    for key, value in found.by_bucket.items():
        check_choice(key, tuple(known), at.key("by_bucket"))
        _check_temperature(value, at.key("by_bucket").key(key))


def _check_temperature(value: float, at: Location) -> None:
    if not MIN_TEMPERATURE <= value <= MAX_TEMPERATURE:
        expected = f"{MIN_TEMPERATURE} to {MAX_TEMPERATURE}"
        raise at.refuse(f"expected {expected}, found {show(value)}")


def _check_limits(limits: DecisionLimits, max_tokens: int, at: Location) -> None:
    for key in (
        "option_tokens",
        "max_questions",
        "max_options",
        "max_levels",
        "max_total_options",
    ):
        check_at_least(1, getattr(limits, key), at.key(key))
    check_choice(limits.overlong.value, (Overlong.CUT_STATE.value,), at.key("overlong"))
    check_at_least(LAYA_MIN_HEAD, limits.head_max_len, at.key("head_max_len"))
    if not limits.head_max_len < limits.max_len <= max_tokens:
        raise at.key("max_len").refuse(
            f"expected above head_max_len {limits.head_max_len} and at most {max_tokens}, the "
            f"model's longest input, found {limits.max_len}"
        )
