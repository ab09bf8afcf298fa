"""What each task answers, and on which models."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from fake_engine import FakeEngine, hidden, pooled
from infinity_v3.artifacts.manifest import (
    Heads,
    Kind,
    LateInteraction,
    PairTemplate,
    ScoreActivation,
)
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.observer import SilentObserver
from infinity_v3.runtime.outputs import MAIN_OUTPUTS
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.runtime.requests import (
    Aggregation,
    ClassifyInput,
    ClassifyRequest,
    ClassifyTokensRequest,
    EmbedRequest,
    EmbedSparseRequest,
    EmbedTokensRequest,
    RankRequest,
    ScoreForm,
    SimilarityRequest,
    TextOptions,
    TextPair,
)
from infinity_v3.runtime.service import InferenceService
from infinity_v3.runtime.settings import ServiceSettings
from tiny_models import END, MAX_INPUT_TOKENS, START, fake_model

BAD = 99
Result = TypeVar("Result")
LABELS = ("O", "B-A", "I-A")
MULTI_LABEL = "multi_label_classification"
RERANKER = Heads(labels=("LABEL_0",), activation=ScoreActivation.SIGMOID)
CLASSIFIER = Heads(labels=LABELS, activation=ScoreActivation.SOFTMAX)
COLBERT = Heads(
    normalize=True,
    late_interaction=LateInteraction(
        query_prefix_id=900,
        document_prefix_id=901,
        query_length=6,
        document_length=8,
        query_expansion_id=902,
        skipped_ids=(50,),
    ),
)
SIDES = PromptTable(named={"query": "", "document": ""})
WIDTHS = {Kind.RERANKER: 1, Kind.CLASSIFIER: 3, Kind.TOKEN_CLASSIFIER: 3}
CALLS: dict[str, Callable[[InferenceService], Awaitable[object]]] = {
    "embed": lambda s: s.embed(EmbedRequest(items=("w5",), is_list=True)),
    "embed_tokens": lambda s: s.embed_tokens(EmbedTokensRequest(items=("w5",), is_list=True)),
    "embed_sparse": lambda s: s.embed_sparse(EmbedSparseRequest(items=("w5",), is_list=True)),
    "similarity": lambda s: s.similarity(SimilarityRequest(source="w5", sentences=("w6",))),
    "rank": lambda s: s.rank(RankRequest(query="w5", documents=("w6",))),
    "classify": lambda s: s.classify(ClassifyRequest(items=("w5",), is_list=True)),
    "classify_tokens": lambda s: s.classify_tokens(
        ClassifyTokensRequest(texts=("w5",), is_list=True)
    ),
}
HEADS = {
    Kind.RERANKER: RERANKER,
    Kind.CLASSIFIER: CLASSIFIER,
    Kind.TOKEN_CLASSIFIER: CLASSIFIER,
    Kind.LATE_INTERACTION: COLBERT,
}
ABLE = {
    Kind.EMBEDDING: {"embed", "embed_tokens", "similarity"},
    Kind.SPARSE: {"embed_sparse"},
    Kind.LATE_INTERACTION: {"embed_tokens"},
    Kind.RERANKER: {"rank", "classify"},
    Kind.CLASSIFIER: {"classify"},
    Kind.TOKEN_CLASSIFIER: {"classify_tokens"},
}
FRAGMENTS = {
    "embed": "Model is not an embedding model",
    "embed_tokens": "Model is not an embedding model",
    "embed_sparse": "Model is not an embedding model with SPLADE pooling",
    "similarity": "Model is not an embedding model",
    "rank": "model is not a re-ranker model",
    "classify": "Model is not a classifier model",
    "classify_tokens": "Model is not a token classification model",
}
SPECIAL_FRAGMENTS = {
    (Kind.LATE_INTERACTION, "embed"): "Model is not an embedding model; use /embed_all",
    (Kind.SPARSE, "embed"): "Model is not an embedding model; use /embed_sparse",
    (Kind.SPARSE, "embed_tokens"): "`embed_all` is not available for SPLADE models",
}


def engine_of(kind: Kind, **fields: object) -> FakeEngine:
    outputs = ("pooled", "hidden") if kind is Kind.EMBEDDING else (MAIN_OUTPUTS[kind],)
    engine = FakeEngine(outputs=outputs, width=WIDTHS.get(kind, 8))
    for name, value in fields.items():
        setattr(engine, name, value)
    return engine


def run(
    kind: Kind,
    call: Callable[[InferenceService], Awaitable[Result]],
    engine: FakeEngine | None = None,
    **model: object,
) -> Result:
    """Serve one call on a fresh service, after which nothing may be left in it."""

    async def scenario() -> Result:
        used = engine or engine_of(kind)
        fields: dict[str, object] = {"kind": kind, "heads": HEADS.get(kind, Heads())}
        loaded = fake_model(used, **(fields | model))  # type: ignore[arg-type]  # fields by name
        service = InferenceService(loaded, ServiceSettings(), SilentObserver())
        service.start()
        try:
            return await call(service)
        finally:
            stats = service.stats()
            assert (stats.num_requests, stats.num_pending_items, stats.num_pending_tokens) == (
                0,
                0,
                0,
            )
            assert service.close()

    return asyncio.run(scenario())


def error_of(
    kind: Kind, call: Callable[[InferenceService], Awaitable[object]], **fields: object
) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        run(kind, call, **fields)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("kind", list(ABLE))
@pytest.mark.parametrize("task", list(CALLS))
def test_each_kind_does_its_tasks_and_refuses_the_others(kind: Kind, task: str) -> None:
    if task in ABLE[kind]:
        run(kind, CALLS[task])
        return
    engine = engine_of(kind)
    error = error_of(kind, CALLS[task], engine=engine)
    assert (error.kind, error.code) == (ErrorKind.BACKEND, "unsupported_task")
    assert SPECIAL_FRAGMENTS.get((kind, task), FRAGMENTS[task]) in error.message
    assert engine.batches == []


def test_token_output_that_was_not_compiled_in() -> None:
    engine = FakeEngine(outputs=("pooled",))
    error = error_of(Kind.EMBEDDING, CALLS["embed_tokens"], engine=engine)
    assert error.code == "unsupported_task"
    assert "infinity-compile model --task embedding" in error.message


def test_sparse_vectors_hold_what_is_positive() -> None:
    result = run(
        Kind.SPARSE,
        lambda s: s.embed_sparse(EmbedSparseRequest(items=((5, 6), "w7"), is_list=True)),
    )
    for vector, fed in zip(result.vectors, ((5, 6), (START, 7, END)), strict=True):
        dense = pooled(fed)
        assert vector.indices == tuple(np.flatnonzero(dense > 0).tolist())
        assert vector.values == tuple(dense[dense > 0].tolist())
    assert result.item_tokens == (2, 3)
    assert result.num_tokens == 5


def wide(vector: NDArray[np.float32]) -> NDArray[np.float64]:
    return vector.astype(np.float64)


def test_similarity_compares_raw_vectors_in_order() -> None:
    result = run(
        Kind.EMBEDDING,
        lambda s: s.similarity(SimilarityRequest(source="w5", sentences=("w6 w7", "w5", "w8"))),
    )
    source = wide(pooled((START, 5, END)))
    for score, ids in zip(result.scores, ((6, 7), (5,), (8,)), strict=True):
        other = wide(pooled((START, *ids, END)))
        expected = source @ other / np.linalg.norm(source) / np.linalg.norm(other)
        assert score == pytest.approx(expected, abs=1e-12)
    assert result.scores[1] == pytest.approx(1.0)
    assert result.item_tokens == (3, 4, 3, 3)


@pytest.mark.parametrize("prompt_name", [None, "query"])
def test_the_prompt_goes_to_both_sides_of_a_comparison(prompt_name: str | None) -> None:
    engine = engine_of(Kind.EMBEDDING)
    request = SimilarityRequest(
        source="w5", sentences=("w6",), options=TextOptions(prompt_name=prompt_name)
    )
    prompts = PromptTable(named={"query": "w7 "}, default="w8 ")
    run(Kind.EMBEDDING, lambda s: s.similarity(request), engine=engine, prompts=prompts)
    prefix = 8 if prompt_name is None else 7
    assert sorted(ids for batch in engine.batches for ids in batch) == [
        (START, prefix, 5, END),
        (START, prefix, 6, END),
    ]


@pytest.mark.parametrize(
    ("source", "sentences", "item", "field", "fragment"),
    [
        ("", ("w5",), None, "inputs.source_sentence", "(inputs.source_sentence)"),
        ("\ud800", ("w5",), None, "inputs.source_sentence", "(inputs.source_sentence)"),
        ("w5", ("w6", ""), 1, "inputs", "`inputs` cannot be empty"),
        ("w5", ("\ud800",), 0, "inputs", "surrogate"),
        ("w5", (), None, "inputs", "`inputs` cannot be empty"),
    ],
)
def test_similarity_says_which_text_is_at_fault(
    source: str, sentences: tuple[str, ...], item: int | None, field: str, fragment: str
) -> None:
    request = SimilarityRequest(source=source, sentences=sentences)
    error = error_of(Kind.EMBEDDING, lambda s: s.similarity(request))
    assert (error.item, error.field) == (item, field)
    assert fragment in error.message


@pytest.mark.parametrize(
    ("source", "sentences", "item"), [("w5", ("w6", f"w{BAD}"), 1), (f"w{BAD}", ("w6",), None)]
)
def test_similarity_names_a_text_whose_inference_failed(
    source: str, sentences: tuple[str, ...], item: int | None
) -> None:
    request = SimilarityRequest(source=source, sentences=sentences)
    engine = engine_of(Kind.EMBEDDING, non_finite_ids={BAD})
    error = error_of(Kind.EMBEDDING, lambda s: s.similarity(request), engine=engine)
    assert (error.code, error.item) == ("non_finite_output", item)
    assert ("(inputs.source_sentence)" in error.message) is (item is None)


def logit(query: int, document: int) -> float:
    return float(pooled((START, query, END, document, END))[0])


def rank(*documents: str, query: str = "w5", **fields: object) -> RankRequest:
    return RankRequest(query=query, documents=documents, **fields)  # type: ignore[arg-type]


def test_rank_scores_pairs_and_orders_by_logit() -> None:
    result = run(Kind.RERANKER, lambda s: s.rank(rank("w6", "w7", "w8")))
    logits = [logit(5, document) for document in (6, 7, 8)]
    expected = [1.0 / (1.0 + np.exp(-value)) for value in logits]
    np.testing.assert_allclose(result.scores, expected, rtol=1e-12)
    assert result.order == tuple(sorted(range(3), key=lambda index: -logits[index]))
    assert result.item_tokens == (5, 5, 5)


def test_raw_scores_are_logits_in_the_same_order() -> None:
    native = run(Kind.RERANKER, lambda s: s.rank(rank("w6", "w7", "w8")))
    raw = run(Kind.RERANKER, lambda s: s.rank(rank("w6", "w7", "w8", form=ScoreForm.LOGITS)))
    assert raw.scores == tuple(logit(5, document) for document in (6, 7, 8))
    assert raw.order == native.order


def test_equal_documents_get_equal_scores_and_the_lower_one_comes_first() -> None:
    engine = engine_of(Kind.RERANKER)
    documents = ("w6", "w7", "w6", "w8", "w7")
    result = run(Kind.RERANKER, lambda s: s.rank(rank(*documents)), engine=engine)
    assert sum(len(batch) for batch in engine.batches) == 3
    assert result.scores[0] == result.scores[2]
    assert result.scores[1] == result.scores[4]
    assert result.order.index(0) < result.order.index(2)
    assert result.order.index(1) < result.order.index(4)
    assert (len(result.scores), result.num_tokens) == (5, 25)


def test_documents_are_cut_on_request() -> None:
    engine = engine_of(Kind.RERANKER)
    request = rank("w6 w7 w8", "w9", max_document_tokens=2)
    run(Kind.RERANKER, lambda s: s.rank(request), engine=engine)
    fed = sorted(ids for batch in engine.batches for ids in batch)
    assert fed == [(START, 5, END, 6, 7, END), (START, 5, END, 9, END)]


def test_pairs_follow_the_artifact_s_template_and_no_prompt() -> None:
    engine = engine_of(Kind.RERANKER)
    template = PairTemplate(
        before="w100 ", between=" w101 ", after=" w102", adds_special_tokens=False
    )
    run(
        Kind.RERANKER,
        lambda s: s.rank(rank("w6")),
        engine=engine,
        pair_template=template,
        prompts=PromptTable(named={"query": "w7 "}, default="w8 ", default_name="query"),
    )
    assert engine.batches == [((100, 5, 101, 6, 102),)]


RANK_REFUSALS = [
    (rank(), ErrorKind.EMPTY, "`inputs` cannot be empty", None, "inputs"),
    (rank("w6", "", query=""), ErrorKind.EMPTY, "cannot be empty", 1, "inputs"),
    (rank("", "", "w6", "", query=""), ErrorKind.EMPTY, "cannot be empty", 0, "inputs"),
    (rank("w6", query="\ud800"), ErrorKind.VALIDATION, "`query` holds a lone", None, "query"),
    (rank("w6", "w6", "\ud800"), ErrorKind.VALIDATION, "surrogate", 2, "inputs"),
    (
        rank("w6", options=TextOptions(prompt_name="query")),
        ErrorKind.VALIDATION,
        "`prompt_name` cannot be set with dual inputs",
        None,
        "prompt_name",
    ),
    (
        rank("w6", "w6", "w6 " * 90, options=TextOptions(truncate=False)),
        ErrorKind.VALIDATION,
        f"must have less than {MAX_INPUT_TOKENS} tokens. Given: 94",
        2,
        "inputs",
    ),
    (
        rank("w6", max_document_tokens=0),
        ErrorKind.VALIDATION,
        "at least 1. Given: 0",
        None,
        "max_tokens_per_doc",
    ),
]


@pytest.mark.parametrize(("request_", "kind", "fragment", "item", "field"), RANK_REFUSALS)
def test_rank_refuses_before_the_engine_is_called(
    request_: RankRequest, kind: ErrorKind, fragment: str, item: int | None, field: str
) -> None:
    engine = engine_of(Kind.RERANKER)
    error = error_of(Kind.RERANKER, lambda s: s.rank(request_), engine=engine)
    assert (error.kind, error.item, error.field) == (kind, item, field)
    assert fragment in error.message
    assert engine.batches == []


@pytest.mark.parametrize(("query", "document"), [("", "w6"), ("w5", ""), (" ", " ")])
def test_one_half_of_a_pair_may_be_empty(query: str, document: str) -> None:
    result = run(Kind.RERANKER, lambda s: s.rank(rank(document, query=query)))
    assert len(result.scores) == 1


def test_a_failed_document_is_named_where_it_first_stands() -> None:
    engine = engine_of(Kind.RERANKER, non_finite_ids={BAD})
    request = rank("w6", "w6", f"w{BAD}", f"w{BAD}")
    error = error_of(Kind.RERANKER, lambda s: s.rank(request), engine=engine)
    assert (error.code, error.item) == ("non_finite_output", 2)


def classify(*items: ClassifyInput, **fields: object) -> ClassifyRequest:
    defaults: dict[str, object] = {"items": items, "is_list": True}
    return ClassifyRequest(**(defaults | fields))  # type: ignore[arg-type]


def softmax(logits: Sequence[float]) -> list[float]:
    powers = [np.exp(value - max(logits)) for value in logits]
    return [float(power / sum(powers)) for power in powers]


def test_classify_takes_texts_ids_and_pairs() -> None:
    pair = TextPair(query="w5", document="w6")
    result = run(Kind.CLASSIFIER, lambda s: s.classify(classify("w5", pair, (7, 8))))
    fed = ((START, 5, END), (START, 5, END, 6, END), (7, 8))
    for item, ids in zip(result.items, fed, strict=True):
        logits = [float(value) for value in pooled(ids)[:3]]
        np.testing.assert_allclose(item.scores, softmax(logits), rtol=1e-12)
        assert item.order == tuple(sorted(range(3), key=lambda index: -logits[index]))
    assert result.item_tokens == (3, 5, 2)


@pytest.mark.parametrize(
    ("heads", "form", "expected"),
    [
        (CLASSIFIER, ScoreForm.NATIVE, "softmax"),
        (CLASSIFIER, ScoreForm.PROBABILITIES, "softmax"),
        (CLASSIFIER, ScoreForm.LOGITS, "logits"),
        (replace(CLASSIFIER, activation=ScoreActivation.NONE), ScoreForm.NATIVE, "logits"),
        (replace(CLASSIFIER, problem_type=MULTI_LABEL), ScoreForm.PROBABILITIES, "sigmoid"),
        (replace(CLASSIFIER, activation=ScoreActivation.SIGMOID), ScoreForm.NATIVE, "sigmoid"),
    ],
)
def test_forms_of_scores(heads: Heads, form: ScoreForm, expected: str) -> None:
    result = run(Kind.CLASSIFIER, lambda s: s.classify(classify((7, 8), form=form)), heads=heads)
    logits = [float(value) for value in pooled((7, 8))[:3]]
    forms = {
        "logits": logits,
        "softmax": softmax(logits),
        "sigmoid": [1.0 / (1.0 + np.exp(-value)) for value in logits],
    }
    np.testing.assert_allclose(result.items[0].scores, forms[expected], rtol=1e-12)


@pytest.mark.parametrize("form", tuple(ScoreForm))
def test_one_label_has_probability_one_but_a_native_sigmoid(form: ScoreForm) -> None:
    logit = float(pooled((7,))[0])
    expected = {
        ScoreForm.PROBABILITIES: 1.0,
        ScoreForm.NATIVE: 1.0 / (1.0 + np.exp(-logit)),
        ScoreForm.LOGITS: logit,
    }
    result = run(Kind.RERANKER, lambda s: s.classify(classify((7,), form=form)))
    assert result.items[0].scores == pytest.approx((expected[form],), rel=1e-12)


def test_prompts_go_to_texts_but_not_to_pairs_or_ids() -> None:
    engine = engine_of(Kind.CLASSIFIER)
    pair = TextPair(query="w5", document="w6")
    prompts = PromptTable(named={"query": "w7 "}, default="w8 ")
    run(
        Kind.CLASSIFIER,
        lambda s: s.classify(classify("w5", pair, (9,))),
        engine=engine,
        prompts=prompts,
    )
    assert engine.batches == [((START, 8, 5, END), (START, 5, END, 6, END), (9,))]


@pytest.mark.parametrize(
    ("item", "what"),
    [(TextPair(query="w5", document="w6"), "dual inputs"), ((9,), "token ids")],
)
def test_a_named_prompt_is_refused_with_pairs_and_ids(item: ClassifyInput, what: str) -> None:
    request = classify("w5", item, options=TextOptions(prompt_name="query"))
    prompts = PromptTable(named={"query": "w7 "})
    error = error_of(Kind.CLASSIFIER, lambda s: s.classify(request), prompts=prompts)
    assert (error.code, error.item) == ("invalid_value", 1)
    assert f"`prompt_name` cannot be set with {what}" in error.message


def test_a_bare_pair_has_no_position() -> None:
    request = classify(TextPair(query="", document=""), is_list=False)
    error = error_of(Kind.CLASSIFIER, lambda s: s.classify(request))
    assert (error.kind, error.item) == (ErrorKind.EMPTY, None)


def classify_tokens(*texts: str, **fields: object) -> ClassifyTokensRequest:
    defaults: dict[str, object] = {"texts": texts, "is_list": True, "ignored_labels": frozenset()}
    return ClassifyTokensRequest(**(defaults | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 200])
def test_tokens_get_their_best_label(count: int) -> None:
    result = run(
        Kind.TOKEN_CLASSIFIER, lambda s: s.classify_tokens(classify_tokens(*["w5 w6"] * count))
    )
    assert len(result.entities) == count
    assert result.item_tokens == (4,) * count
    for entities in result.entities:
        assert [(e.token, e.token_id, e.start, e.end) for e in entities] == [
            ("w5", 5, 0, 2),
            ("w6", 6, 3, 5),
        ]
        for entity, logits in zip(entities, hidden((5, 6))[:, :3], strict=True):
            best = int(logits.argmax())
            shares = softmax([float(value) for value in logits])
            assert entity.results == {LABELS[best]: pytest.approx(shares[best], rel=1e-12)}


def test_logits_of_tokens_are_shown_whole() -> None:
    request = classify_tokens("w5", form=ScoreForm.LOGITS)
    result = run(Kind.TOKEN_CLASSIFIER, lambda s: s.classify_tokens(request))
    ((entity,),) = result.entities
    logits = [float(value) for value in hidden((5,))[0, :3]]
    assert entity.results == dict(zip(LABELS, logits, strict=True))


def test_the_prompt_has_no_entities_and_does_not_shift_characters() -> None:
    engine = engine_of(Kind.TOKEN_CLASSIFIER)
    result = run(
        Kind.TOKEN_CLASSIFIER,
        lambda s: s.classify_tokens(classify_tokens("w5 w6")),
        engine=engine,
        prompts=PromptTable(named={}, default="w8 w9 "),
    )
    assert engine.batches == [((START, 8, 9, 5, 6, END),)]
    assert [(e.token, e.start, e.end) for e in result.entities[0]] == [("w5", 0, 2), ("w6", 3, 5)]


@pytest.mark.parametrize("aggregation", [a for a in Aggregation if a is not Aggregation.NONE])
def test_logits_of_groups_do_not_exist(aggregation: Aggregation) -> None:
    request = classify_tokens("w5", form=ScoreForm.LOGITS, aggregation=aggregation)
    error = error_of(Kind.TOKEN_CLASSIFIER, lambda s: s.classify_tokens(request))
    assert (error.kind, error.code) == (ErrorKind.VALIDATION, "invalid_value")


def test_a_text_at_fault_is_named() -> None:
    request = classify_tokens("w5", "")
    error = error_of(Kind.TOKEN_CLASSIFIER, lambda s: s.classify_tokens(request))
    assert (error.kind, error.item) == (ErrorKind.EMPTY, 1)
    engine = engine_of(Kind.TOKEN_CLASSIFIER, non_finite_ids={BAD})
    request = classify_tokens("w5", f"w{BAD}")
    error = error_of(Kind.TOKEN_CLASSIFIER, lambda s: s.classify_tokens(request), engine=engine)
    assert (error.code, error.item) == ("non_finite_output", 1)


def colbert(*items: str | tuple[int, ...], **options: object) -> EmbedTokensRequest:
    return EmbedTokensRequest(
        items=items,
        is_list=True,
        options=TextOptions(**options),  # type: ignore[arg-type]
    )


def unit(matrix: NDArray[np.float32]) -> NDArray[np.float64]:
    rows = wide(matrix)
    unit_rows: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit_rows


def test_queries_are_filled_up_and_normalised() -> None:
    engine = engine_of(Kind.LATE_INTERACTION)
    result = run(
        Kind.LATE_INTERACTION,
        lambda s: s.embed_tokens(colbert("w5", prompt_name="query")),
        engine=engine,
        prompts=SIDES,
    )
    fed = (START, 900, 5, END, 902, 902)
    assert engine.batches == [(fed,)]
    assert engine.key_counts == [(4,)]
    np.testing.assert_allclose(result.rows[0], unit(hidden(fed)), atol=1e-7)
    assert result.item_tokens == (6,)


def test_documents_lose_the_vectors_of_skipped_tokens() -> None:
    engine = engine_of(Kind.LATE_INTERACTION)
    result = run(
        Kind.LATE_INTERACTION,
        lambda s: s.embed_tokens(colbert("w50 w7", (8, 50))),
        engine=engine,
        prompts=SIDES,
    )
    assert engine.batches == [((START, 901, 50, 7, END), (8, 50))]
    np.testing.assert_allclose(result.rows[0], unit(hidden((START, 901, 7, END))), atol=1e-7)
    np.testing.assert_allclose(result.rows[1], unit(hidden((8,))), atol=1e-7)
    assert result.item_tokens == (5, 2)
    assert all(row.flags.c_contiguous and row.dtype == np.float32 for row in result.rows)


@pytest.mark.parametrize(
    ("prompt_name", "fed"),
    [(None, (START, 900, 7, 5, END, 902)), ("document", (START, 901, 5, END))],
)
def test_the_default_prompt_chooses_the_side(prompt_name: str | None, fed: tuple[int, ...]) -> None:
    engine = engine_of(Kind.LATE_INTERACTION)
    run(
        Kind.LATE_INTERACTION,
        lambda s: s.embed_tokens(colbert("w5", prompt_name=prompt_name)),
        engine=engine,
        prompts=PromptTable(
            named={"query": "w7 ", "document": ""}, default="w7 ", default_name="query"
        ),
    )
    assert engine.batches == [(fed,)]


def test_vectors_stay_as_they_are_where_the_checkpoint_says_so() -> None:
    result = run(
        Kind.LATE_INTERACTION,
        lambda s: s.embed_tokens(colbert("w5")),
        heads=replace(COLBERT, normalize=False),
        prompts=SIDES,
    )
    np.testing.assert_array_equal(result.rows[0], hidden((START, 901, 5, END)))


def test_ids_take_no_side_by_name() -> None:
    request = colbert((5,), prompt_name="query")
    error = error_of(Kind.LATE_INTERACTION, lambda s: s.embed_tokens(request), prompts=SIDES)
    assert (error.code, error.item) == ("invalid_value", 0)


@pytest.mark.parametrize("task", ["rank", "classify", "classify_tokens", "embed_sparse"])
def test_a_service_that_is_not_ready_refuses_every_task(task: str) -> None:
    async def scenario() -> None:
        kind = next(kind for kind, tasks in ABLE.items() if task in tasks)
        model = fake_model(engine_of(kind), kind=kind, heads=HEADS.get(kind, Heads()))
        service = InferenceService(model, ServiceSettings(), SilentObserver())
        with pytest.raises(InferenceError) as caught:
            await CALLS[task](service)
        assert caught.value.kind is ErrorKind.UNHEALTHY
        assert service.close()

    asyncio.run(scenario())
