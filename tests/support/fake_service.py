"""An inference service without a model: one token per word, numbers that follow from the items.

Implements the server's `Service` protocol for every kind. Knows nothing of artifacts or engines.
"""

import asyncio
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fake_decision import make_decision
from infinity_v3.artifacts.manifest import Backend, Device, Kind, PoolingMode, Precision
from infinity_v3.runtime import capabilities
from infinity_v3.runtime.checks import check_dimensions, check_ids, check_items, check_max_tokens
from infinity_v3.runtime.decisions.answers import Answer as DecisionAnswer
from infinity_v3.runtime.decisions.answers import make_answer
from infinity_v3.runtime.decisions.question import DecideRequest, Question
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.limits import Admission, ThroughputMeter
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.requests import (
    ClassifyInput,
    ClassifyRequest,
    ClassifyTokensRequest,
    Conversation,
    DecodeRequest,
    EmbedRequest,
    EmbedSparseRequest,
    EmbedTokensRequest,
    RankRequest,
    ScoreForm,
    ScoreRequest,
    SimilarityRequest,
    TextInput,
    TextOptions,
    TextPair,
    TokenizeRequest,
)
from infinity_v3.runtime.results import (
    ClassifyResult,
    ClassifyTokensResult,
    DecideResult,
    EmbedResult,
    LabelScores,
    RankResult,
    RequestTiming,
    ScoreResult,
    SimilarityResult,
    SparseResult,
    SparseVector,
    TokenEntity,
)
from infinity_v3.runtime.state import ServiceState, ServiceStats
from infinity_v3.runtime.tokens import TokenPiece

WIDTH = 8
VOCAB = 1000
LIMIT = 16
TIMING = RequestTiming(tokenization_s=0.001, queue_s=0.002, inference_s=0.003)
LABELS: Mapping[Kind, tuple[str, ...]] = {
    Kind.CLASSIFIER: ("bad", "so-so", "good"),
    Kind.RERANKER: ("LABEL_0",),
    Kind.TOKEN_CLASSIFIER: ("O", "B-WORD"),
}
AnyRequest = (
    EmbedRequest
    | EmbedTokensRequest
    | EmbedSparseRequest
    | SimilarityRequest
    | RankRequest
    | ScoreRequest
    | ClassifyRequest
    | ClassifyTokensRequest
)


def vector_of(item: object) -> NDArray[np.float32]:
    """The raw vector of an item."""
    seed = zlib.crc32(repr(item).encode("utf-8", "backslashreplace"))
    return np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)


def logits_of(item: object, num_labels: int) -> list[float]:
    """The logits of an item: float32 numbers."""
    return [float(value) for value in vector_of(item)[:num_labels]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeJoint:
    """Requests of a group, each on its own."""

    service: "FakeService"
    refusal: InferenceError | None = None

    def leave(self) -> None: ...


class FakeService:
    """Behaves like the inference service; `gate` holds requests back, `failure` fails them."""

    def __init__(
        self,
        max_requests: int = 512,
        max_queue_tokens: int = 1000,
        kind: Kind = Kind.EMBEDDING,
    ) -> None:
        self.state = ServiceState.READY
        self.kind = kind
        self.admission = Admission(
            max_requests=max_requests,
            max_queue_tokens=max_queue_tokens,
            throughput=ThroughputMeter(),
        )
        self.gate: asyncio.Event | None = None
        self.num_computed = 0
        self.num_cancelled = 0
        self.last_request: AnyRequest | None = None
        self.last_decision: DecideRequest | None = None
        self.failure: Exception | None = None
        self.info = model_info("tiny", kind)

    @property
    def request(self) -> AnyRequest:
        """The latest request."""
        assert self.last_request is not None
        return self.last_request

    @property
    def options(self) -> TextOptions:
        """Those of the latest request."""
        return self.request.options

    def check_can_embed(self) -> None:
        capabilities.check_can_embed(self.info)

    def check_can_embed_tokens(self) -> None:
        capabilities.check_can_embed_tokens(self.info)

    def check_can_embed_sparse(self) -> None:
        capabilities.check_can_embed_sparse(self.info)

    def check_can_compare(self) -> None:
        capabilities.check_can_compare(self.info)

    def check_can_rank(self) -> None:
        capabilities.check_can_rank(self.info)

    def check_can_score(self) -> None:
        capabilities.check_can_score(self.info)

    def check_can_classify(self) -> None:
        capabilities.check_can_classify(self.info)

    def check_can_classify_tokens(self) -> None:
        capabilities.check_can_classify_tokens(self.info)

    def check_can_decide(self) -> None:
        capabilities.check_can_decide(self.info)

    def check_can_converse(self) -> None:
        capabilities.check_can_converse(self.info)

    async def embed(self, request: EmbedRequest) -> EmbedResult:
        check_dimensions(request.dimensions, WIDTH)
        counts = await self._infer(request, request.items, is_list=request.is_list)
        rows = tuple(_embedding(item, request) for item in request.items)
        return EmbedResult(rows=rows, item_tokens=counts, timing=TIMING)

    async def embed_tokens(self, request: EmbedTokensRequest) -> EmbedResult:
        counts = await self._infer(request, request.items, is_list=request.is_list)
        rows = tuple(np.stack([vector_of((place,)) for place in range(n)]) for n in counts)
        return EmbedResult(rows=rows, item_tokens=counts, timing=TIMING)

    async def embed_sparse(self, request: EmbedSparseRequest) -> SparseResult:
        counts = await self._infer(request, request.items, is_list=request.is_list)
        vectors = tuple(_sparse(vector_of(item)) for item in request.items)
        return SparseResult(vectors=vectors, item_tokens=counts, timing=TIMING)

    async def similarity(self, request: SimilarityRequest) -> SimilarityResult:
        texts = (request.source, *request.sentences)
        counts = await self._infer(request, texts, is_list=True)
        source, *others = (vector_of(text).astype(np.float64) for text in texts)
        scores = tuple(
            float(source @ other / (np.linalg.norm(source) * np.linalg.norm(other)))
            for other in others
        )
        return SimilarityResult(scores=scores, item_tokens=counts, timing=TIMING)

    async def rank(self, request: RankRequest) -> RankResult:
        pairs = tuple(TextPair(query=request.query, document=text) for text in request.documents)
        counts = await self._infer(request, pairs, is_list=True)
        logits = [logits_of(pair, 1) for pair in pairs]
        return RankResult(
            scores=tuple(activated(row, request.form, is_single=True)[0] for row in logits),
            order=_order([row[0] for row in logits]),
            item_tokens=counts,
            timing=TIMING,
        )

    async def score(self, request: ScoreRequest) -> ScoreResult:
        counts = await self._infer(request, request.pairs, is_list=request.is_list)
        scores = tuple(
            activated(logits_of(pair, 1), ScoreForm.NATIVE, is_single=True)[0]
            for pair in request.pairs
        )
        return ScoreResult(scores=scores, item_tokens=counts, timing=TIMING)

    async def classify(self, request: ClassifyRequest) -> ClassifyResult:
        counts = await self._infer(request, request.items, is_list=request.is_list)
        num_labels = len(LABELS[self.kind])
        rows = [logits_of(item, num_labels) for item in request.items]
        items = tuple(
            LabelScores(
                scores=tuple(activated(row, request.form, is_single=num_labels == 1)),
                order=_order(row),
            )
            for row in rows
        )
        return ClassifyResult(items=items, item_tokens=counts, timing=TIMING)

    async def classify_tokens(self, request: ClassifyTokensRequest) -> ClassifyTokensResult:
        counts = await self._infer(request, request.texts, is_list=request.is_list)
        entities = tuple(_entities(text, request) for text in request.texts)
        return ClassifyTokensResult(entities=entities, item_tokens=counts, timing=TIMING)

    async def decide(self, request: DecideRequest) -> DecideResult:
        """A token per option; a state that ends in "…" was cut, one option says "long" is none."""
        self.last_decision = request
        for position, question in enumerate(request.questions):
            if any(option.text == "too long" for option in question.options):
                message = "its options do not fit"
                kind = ErrorKind.VALIDATION
                raise InferenceError(kind, "max_length_exceeded", message, item=position)
        items = tuple(" ".join(["word"] * len(question.options)) for question in request.questions)
        counts = await self._run(items)
        is_cut = isinstance(request.state, str) and request.state.endswith("…")
        return DecideResult(
            answers=tuple(_decided(question, is_cut=is_cut) for question in request.questions),
            num_input_tokens=sum(counts),
            num_output_tokens=0,
            item_tokens=counts,
            timing=TIMING,
        )

    async def _infer(
        self, request: AnyRequest, items: Sequence[ClassifyInput], *, is_list: bool
    ) -> tuple[int, ...]:
        self.last_request = request
        try:
            _check_options(request.options)
            check_items(items, has_prompt_name=request.options.prompt_name is not None)
            return await self._run(items)
        except InferenceError as error:
            if not is_list:
                error.item = None
            raise

    async def _run(self, items: Sequence[ClassifyInput]) -> tuple[int, ...]:
        counts = tuple(map(num_tokens, items))
        self.admission.take_slot()
        try:
            for position, item in enumerate(items):
                if isinstance(item, tuple):
                    check_ids(item, VOCAB, position)
            self.admission.admit_tokens(sum(counts))
            try:
                await self._compute()
            finally:
                self.admission.release_tokens(sum(counts))
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.admission.release_slot()
        self.num_computed += len(items)
        return counts

    async def _compute(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure

    async def tokenize(self, request: TokenizeRequest) -> tuple[tuple[TokenPiece, ...], ...]:
        check_items(request.texts, has_prompt_name=False)
        return tuple(
            (TokenPiece(token_id=7, text=text, is_special=False, start=0, stop=len(text)),)
            for text in request.texts
        )

    async def decode(self, request: DecodeRequest) -> tuple[str, ...]:
        for position, ids in enumerate(request.id_lists):
            if not ids:
                raise InferenceError(
                    ErrorKind.EMPTY, "empty_input", "`input_ids` cannot be empty", item=position
                )
            check_ids(ids, VOCAB, position)
        return tuple(" ".join(map(str, ids)) for ids in request.id_lists)

    @contextmanager
    def joint(self, num_requests: int) -> Iterator["FakeJoint"]:
        assert num_requests > 0
        yield FakeJoint(service=self)

    def stats(self) -> ServiceStats:
        return ServiceStats(
            num_requests=self.admission.num_requests,
            max_requests=self.admission.max_requests,
            num_queued_items=0,
            num_pending_items=0,
            num_pending_tokens=self.admission.num_tokens,
            max_queue_tokens=self.admission.max_queue_tokens,
            tokens_per_s=None,
            last_batch_items=0,
            last_batch_tokens=0,
        )

    def close(self) -> bool:
        return True

    async def retire(self) -> bool:
        return True


def _check_options(options: TextOptions) -> None:
    check_max_tokens(options.max_tokens, LIMIT)
    if options.prompt_name not in {None, "query"}:
        raise InferenceError(
            ErrorKind.VALIDATION,
            "unknown_prompt",
            "no such prompt; available: query",
            field="prompt_name",
        )


def num_tokens(item: ClassifyInput) -> int:
    """One token per word and two special ones, three in a pair."""
    if isinstance(item, TextPair):
        return len(item.query.split()) + len(item.document.split()) + 3
    if isinstance(item, Conversation):
        return sum(len(text.split()) for text in item.texts)
    return len(item.split()) + 2 if isinstance(item, str) else len(item)


def _embedding(item: TextInput, request: EmbedRequest) -> NDArray[np.float32]:
    vector = vector_of(item)[: request.dimensions]
    if not request.normalize:
        return vector
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def _sparse(vector: NDArray[np.float32]) -> SparseVector:
    indices = np.flatnonzero(vector > 0).tolist()
    return SparseVector(indices=tuple(indices), values=tuple(vector[indices].tolist()))


def activated(logits: Sequence[float], form: ScoreForm, *, is_single: bool) -> list[float]:
    """What becomes of logits: sigmoid of a single label, else softmax."""
    if form is ScoreForm.LOGITS:
        return list(logits)
    values = np.array(logits, dtype=np.float64)
    if is_single and form is ScoreForm.NATIVE:
        return [float(value) for value in 1 / (1 + np.exp(-values))]
    powers = np.exp(values - values.max())
    return [float(value) for value in powers / powers.sum()]


def probabilities_of_question(question: Question) -> NDArray[np.float64]:
    """What the service without a model says to a question."""
    count = len(question.options)
    seed = zlib.crc32(repr((question.kind, question.options)).encode("utf-8", "replace"))
    powers = np.exp(np.random.default_rng(seed).standard_normal(count))
    found: NDArray[np.float64] = powers / powers.sum()
    return found


def _decided(question: Question, *, is_cut: bool) -> DecisionAnswer:
    p = probabilities_of_question(question)
    return make_answer(question.kind, p, float(p.max()), is_truncated=is_cut)


def _order(logits: Sequence[float]) -> tuple[int, ...]:
    return tuple(sorted(range(len(logits)), key=lambda index: (-logits[index], index)))


def _entities(text: str, request: ClassifyTokensRequest) -> tuple[TokenEntity, ...]:
    """Every other word has the second label."""
    labels = LABELS[Kind.TOKEN_CLASSIFIER]
    found, start = [], 0
    for place, word in enumerate(text.split(" ")):
        label = labels[(place + 1) % 2]
        if label not in request.ignored_labels:
            logits = dict(zip(labels, logits_of(word, 2), strict=True))
            results = logits if request.form is ScoreForm.LOGITS else {label: 0.75}
            found.append(
                TokenEntity(
                    token=word, token_id=7, start=start, end=start + len(word), results=results
                )
            )
        start += len(word) + 1
    return tuple(found)


def model_info(name: str, kind: Kind = Kind.EMBEDDING) -> ModelInfo:
    """Facts that match the service without a model."""
    pooling = {Kind.EMBEDDING: (PoolingMode.LAST_TOKEN,), Kind.SPARSE: (PoolingMode.SPLADE,)}
    return ModelInfo(
        name=name,
        kind=kind,
        artifact_id="sha256:" + "0" * 64,
        format_version=1,
        target_name="cpu-x86_64-avx2-f32",
        backend=Backend.AOTI,
        device=Device.CPU,
        precision=Precision.FLOAT32,
        vocab_size=VOCAB,
        max_input_tokens=LIMIT,
        max_batch_tokens=256,
        fill_tokens=256,
        max_batch_items=64,
        width=WIDTH,
        pooling=pooling.get(kind, ()),
        prompt_names=("query",),
        capabilities=capabilities.capabilities_of(kind, has_token_output=True),
        source_revision=None,
        labels=LABELS.get(kind, ()),
        decision=make_decision() if kind is Kind.DECISION else None,
        problem_type=None,
    )
