"""Requests in the service's own words; the server has checked their shape."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; its content is a text, or the texts of its parts."""

    role: str
    content: str | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages that the model's chat template makes one text of."""

    messages: tuple[Message, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """What all messages say, part by part."""
        contents = (message.content for message in self.messages)
        parts = ((part,) if isinstance(part, str) else part for part in contents)
        return tuple(text for part in parts for text in part)


TextInput = str | tuple[int, ...] | Conversation
"""A text, token ids that are fed to the model as they are, or a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPair:
    """A query and a document (or any two texts) that the model reads together."""

    query: str
    document: str


ClassifyInput = TextInput | TextPair
"""What a classifier reads."""


class ScoreForm(str, Enum):
    """How logits become the numbers of a reply.

    Attributes:
        NATIVE: the artifact's activation.
        LOGITS: untouched.
        PROBABILITIES: sigmoid per label for multi-label models, else softmax, which gives 1.0 for a
            single label.
    """

    NATIVE = "native"
    LOGITS = "logits"
    PROBABILITIES = "probabilities"


class Aggregation(str, Enum):
    """How tokens become entities: the strategies of transformers' token-classification pipeline."""

    NONE = "none"
    SIMPLE = "simple"
    FIRST = "first"
    AVERAGE = "average"
    MAX = "max"


class TruncationSide(str, Enum):
    """Which end of a too long input is cut off."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How texts become tokens.

    Attributes:
        truncate: None = the server's default.
        max_tokens: cut at this many tokens instead of the model's limit (1 .. limit).
        prompt_name: None = the default prompt, if there is one.
    """

    truncate: bool | None = None
    truncation_side: TruncationSide = TruncationSide.RIGHT
    max_tokens: int | None = None
    prompt_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a request may run.

    Attributes:
        is_priority: it goes before others, which have waited a little longer.
        deadline_s: on the clock of time.monotonic(); None = it waits as long as it takes.
        is_alone: no other is under way. Brief ones are then computed on the event loop's thread.
    """

    is_priority: bool = False
    deadline_s: float | None = None
    is_alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRequest:
    """Items that something is to be made of.

    Attributes:
        items: at least one.
        is_list: False for a bare input; then errors carry no item position.
    """

    items: tuple[TextInput, ...]
    is_list: bool
    options: TextOptions = TextOptions()
    schedule: Schedule = Schedule()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedRequest(VectorRequest):
    """Items to turn into one vector each.

    `dimensions`: keep the first that many components, then normalise.
    """

    normalize: bool = True
    dimensions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedTokensRequest(VectorRequest):
    """Items to turn into one vector per token.

    For late-interaction models the prompts "query" and "document" choose the rules of the side.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedSparseRequest(VectorRequest):
    """Items to turn into one sparse vector over the vocabulary each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityRequest:
    """One text to compare with each of some others; the prompt goes to both sides."""

    source: str
    sentences: tuple[str, ...]
    options: TextOptions = TextOptions()
    schedule: Schedule = Schedule()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRequest:
    """Documents to order by their relevance to a query.

    Attributes:
        documents: at least one.
        form: NATIVE or LOGITS.
        max_document_tokens: each document is cut to that many tokens first, on its right.
    """

    query: str
    documents: tuple[str, ...]
    options: TextOptions = TextOptions()
    schedule: Schedule = Schedule()
    form: ScoreForm = ScoreForm.NATIVE
    max_document_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Pairs whose texts are scored together, or compared.

    Attributes:
        pairs: at least one.
        is_list: False for a bare pair; then errors carry no item position.
    """

    pairs: tuple[TextPair, ...]
    is_list: bool
    options: TextOptions = TextOptions()
    schedule: Schedule = Schedule()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyRequest:
    """Items, pairs among them, to score by every label.

    Attributes:
        items: at least one.
        is_list: False for a bare input; then errors carry no item position.
    """

    items: tuple[ClassifyInput, ...]
    is_list: bool
    options: TextOptions = TextOptions()
    schedule: Schedule = Schedule()
    form: ScoreForm = ScoreForm.NATIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyTokensRequest:
    """Texts whose tokens get labels.

    Attributes:
        texts: at least one.
        ignored_labels: entries whose best label is one of these are left out.
        form: NATIVE (softmax), or LOGITS, which needs Aggregation.NONE.
    """

    texts: tuple[str, ...]
    is_list: bool
    options: TextOptions = TextOptions()
    schedule: Schedule = Schedule()
    aggregation: Aggregation = Aggregation.NONE
    ignored_labels: frozenset[str] = frozenset({"O"})
    form: ScoreForm = ScoreForm.NATIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeRequest:
    """Whole texts to show as tokens; nothing is truncated."""

    texts: tuple[str, ...]
    is_list: bool
    add_special_tokens: bool = True
    prompt_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRequest:
    """Lists of token ids to turn back into texts."""

    id_lists: tuple[tuple[int, ...], ...]
    is_list: bool
    skip_special_tokens: bool = True
