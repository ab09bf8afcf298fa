"""The manifest of an artifact as frozen dataclasses, format version 1.

Owns names, types and defaults of every key of `artifact.json`. Does no I/O: reading and writing
live in `codec.py`. A field whose JSON key differs from its Python name says so in
`metadata["key"]`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from infinity_v3.artifacts.decision import Decision

FORMAT = "infinity-artifact"
FORMAT_VERSION = 1


class Kind(str, Enum):
    """What an artifact does."""

    EMBEDDING = "embedding"
    SPARSE = "sparse"
    LATE_INTERACTION = "late_interaction"
    RERANKER = "reranker"
    CLASSIFIER = "classifier"
    TOKEN_CLASSIFIER = "token_classifier"
    DECISION = "decision"


class Backend(str, Enum):
    """Format of an engine."""

    AOTI = "aoti"
    TENSORRT = "tensorrt"
    ONNX = "onnx"


class Device(str, Enum):
    """Where an engine runs."""

    CPU = "cpu"
    CUDA = "cuda"


class Precision(str, Enum):
    """Number format of weights and matrix products."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"
    FP8_DYNAMIC = "fp8-dynamic"


class PoolingMode(str, Enum):
    """How token vectors become one vector, as sentence-transformers defines each mode."""

    CLS = "cls"
    MEAN = "mean"
    MAX = "max"
    MEAN_SQRT_LEN = "mean-sqrt-len"
    WEIGHTED_MEAN = "weighted-mean"
    LAST_TOKEN = "last-token"
    SPLADE = "splade"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of the artifact; `path` is relative, with `/`."""

    path: str
    num_bytes: int = field(metadata={"key": "bytes"})
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the checkpoint is.

    `max_input_tokens` never exceeds the position table minus `position_offset`.
    """

    family: str
    architecture: str
    hidden_size: int
    vocab_size: int
    num_parameters: int
    max_input_tokens: int
    position_offset: int
    causal: bool
    modalities: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """`modes` are concatenated in this order.

    `alternatives` are compiled in beside them, selectable at start.
    """

    modes: tuple[PoolingMode, ...]
    alternatives: tuple[PoolingMode, ...] = ()


class ScoreActivation(str, Enum):
    """How logits become scores."""

    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateInteraction:
    """How queries and documents become token vectors (ColBERT; Khattab and Zaharia, 2020).

    Attributes:
        query_prefix_id, document_prefix_id: put behind the first special token; None = nothing.
        query_length: queries are cut to it, and filled up to it where they are expanded.
        document_length: documents are cut to it.
        query_expansion_id: fills queries up to `query_length`; None = queries keep their length.
        attends_to_expansion: tokens see the filled-up ones; else these only look.
        skipped_ids: tokens of documents that get no vector (punctuation), ascending.
    """

    query_prefix_id: int | None = None
    document_prefix_id: int | None = None
    query_length: int | None = None
    document_length: int | None = None
    query_expansion_id: int | None = None
    attends_to_expansion: bool = False
    skipped_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """What post-processing needs to know.

    Attributes:
        dimensions: width of one output vector.
        normalize: it is divided by its L2 norm.
        labels: names of the logits, in their order.
        opposite_label: what the model answers instead of its only label, where the logit is the
            log-odds of two words; None = the logit stands alone.
    """

    pooling: Pooling | None = None
    dimensions: int | None = None
    normalize: bool = False
    labels: tuple[str, ...] = ()
    opposite_label: str | None = None
    problem_type: str | None = None
    activation: ScoreActivation | None = None
    similarity: str | None = None
    late_interaction: LateInteraction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Named prefixes; `default` is the name of the one applied when a request names none."""

    named: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRule:
    """Longest input in tokens, special tokens included, and the file or option that said so."""

    max_tokens: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTemplate:
    """A query and a document as one text: before + query + between + document + after.

    Attributes:
        adds_special_tokens: the tokenizer puts its special tokens around the text as a whole;
            False where `before` and `after` hold all there are.
        is_document_first: the document stands before the query.
    """

    before: str
    between: str
    after: str
    adds_special_tokens: bool
    is_document_first: bool = False


TemplateValue = str | bool | int | float | None
"""What a chat template may be given beside the messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """How a conversation becomes one text, to which the tokenizer adds no special tokens.

    Attributes:
        file: the template, in the language of Jinja.
        variables: what it is given beside the messages: special tokens by role, and options.
        takes_text: the content of a message may be a text.
        takes_parts: it may be a list of parts.
    """

    file: str
    variables: Mapping[str, TemplateValue]
    takes_text: bool
    takes_parts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """How texts become tokens.

    `special_tokens`: "template" when the tokenizer's post-processor adds them, else "none".
    `pair_template`: None = pairs are the tokenizer's own.
    `chat_template`: None = conversations cannot be read.
    """

    file: str
    length: LengthRule
    special_tokens: str
    truncation_side: str
    pair_template: PairTemplate | None = None
    chat_template: ChatTemplate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output of the packed graph.

    A string dimension is symbolic: "T" packed tokens, "N" stored ones, "B" sequences, "B+1" bounds,
    "M" readout positions.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Inputs and outputs in call order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedWeights:
    """A weight file that several targets of one precision map."""

    precision: Precision
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptProgram:
    """The exported graph of one precision, kept so that targets can be added later."""

    precision: Precision
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a host must offer.

    `torch` is the minor that built the engine ("2.13"); `isa` are /proc/cpuinfo flags.
    """

    arch: str
    isa: tuple[str, ...] = ()
    sm: str | None = None
    torch: str | None = None
    kernel_abi: str | None = None
    cuda: str | None = None
    tensorrt: str | None = None
    driver_min: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Largest batch the engine was compiled for."""

    max_tokens: int
    max_sequences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityBounds:
    """Bounds that the target was held to; None = not applied to this precision."""

    max_abs: float | None = None
    min_cosine: float | None = None
    batch_max_abs: float | None = None
    batch_min_cosine: float | None = None
    max_probability: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Verdict of the comparison with the reference model; the figures are in build.json."""

    reference: str
    probes_digest: str
    probe_count: int
    bounds: ParityBounds
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One engine for one class of hosts.

    `entry` is the file to open; `weights` names a precision of the manifest's `weights`.
    """

    name: str
    backend: Backend
    device: Device
    precision: Precision
    requires: Requirements
    limits: Limits
    entry: str
    files: tuple[FileEntry, ...]
    weights: Precision | None
    parity: Parity


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A checkpoint file that was read."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the weights came from; `repository` is a hub id or "local"."""

    repository: str
    revision: str | None
    files: tuple[SourceFile, ...]
    license: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Versions and flags that change the code of the engines."""

    infinity_v3: str
    torch: str
    transformers: str
    compiler: str
    tensorrt: str | None
    kernel_abi: str
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The whole of artifact.json."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    name: str
    kind: Kind
    model: ModelFacts
    heads: Heads
    prompts: Prompts
    tokenizer: Tokenizer
    decision: Decision | None = None
    graph: Graph
    weights: tuple[SharedWeights, ...] = ()
    program: tuple[KeptProgram, ...] = ()
    targets: tuple[Target, ...]
    files: tuple[FileEntry, ...]
    source: Source
    provenance: Provenance
