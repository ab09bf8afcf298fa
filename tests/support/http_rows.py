"""Requests to all-MiniLM-L6-v2 (width 384, 256 tokens, 30522 ids) with one fixed answer each.

The numbers are the rows of the HTTP contract's table of edge cases.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

EMBED = "/embed"
OPENAI = "/v1/embeddings"
LONG_TEXT = "hello " * 598  # 600 tokens with [CLS] and [SEP]
MESSAGES = [{"role": "user", "content": "hello"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request and what its answer must be.

    Attributes:
        name: row number and what is particular.
        body: JSON value, or bytes sent as they are.
        kind: `error_type`, or in OpenAI's shape the top-level `type`.
        fragment: part of the message.
        code: `error.code`, in OpenAI's shape only.
    """

    name: str
    body: object
    status: int
    path: str = EMBED
    kind: str | None = None
    fragment: str = ""
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


def all_rows() -> Sequence[Row]:
    """Every row."""
    return (
        *_empty(),
        *_sizes(),
        *_types(),
        *_options(),
        *_lengths(),
        *_openai(),
        *_tasks(),
        *_protocol(),
    )


def _embed(name: str, inputs: object, status: int, **more: object) -> Row:
    body = {"inputs": inputs, **more}
    return Row(name=name, body=body, status=status, kind="Validation" if status == 422 else None)


def _empty() -> Iterator[Row]:
    def row(name: str, inputs: object, suffix: str) -> Row:
        message = "Input validation error: `inputs` cannot be empty" + suffix
        body = {"inputs": inputs}
        return Row(name=name, body=body, status=400, kind="Empty", fragment=message)

    yield row("3-empty-text", "", "")
    yield row("3-empty-list", [], "")
    yield row("4-list-of-empty-text", [""], " (item 0)")
    yield row("4-list-of-empty-ids", [[]], " (item 0)")
    yield row("4-second-is-empty", ["a", ""], " (item 1)")
    yield _embed("5-white-space", "   ", 200)
    yield _embed("5-nul", "\u0000", 200)


def _sizes() -> Iterator[Row]:
    for count in (33, 128, 1024):
        yield _embed(f"6-{count}-texts", ["a"] * count, 200)
    yield Row(
        name="7-1025-texts",
        body={"inputs": ["a"] * 1025},
        status=422,
        kind="Validation",
        fragment="batch size 1025 > maximum allowed batch size 1024",
    )


def _types() -> Iterator[Row]:
    for name, raw in {"object": b"{}", "null": b"null", "number": b"5"}.items():
        yield Row(name=f"8-bare-{name}", body=raw, status=422, kind="Validation")
    for name, value in {"number": 5, "null": None}.items():
        yield Row(
            name=f"8-inputs-{name}",
            body={"inputs": value},
            status=422,
            kind="Validation",
            fragment="`inputs`",
        )
    places: Mapping[str, tuple[Sequence[object], str]] = {
        "float": ([1.5], "inputs[0]"),
        "bool": ([True], "inputs[0]"),
        "second-is-id": (["a", 1], "inputs[1]"),
        "second-is-text": ([1, "a"], "inputs[1]"),
        "negative": ([-1], "-1 at position 0"),
        "out-of-vocabulary": ([30522], "30522 at position 0"),
        "beyond-32-bits": ([4294967296], "4294967296 at position 0"),
        "later-id": ([[101], [101, 30522, 102]], "position 1"),
        "later-item": ([[101], [101, 30522, 102]], "(item 1)"),
    }
    for name, (inputs, place) in places.items():
        yield Row(
            name=f"9-{name}",
            body={"inputs": inputs},
            status=422,
            kind="Validation",
            fragment=place,
        )


def _options() -> Iterator[Row]:
    wrong: Mapping[str, Mapping[str, object]] = {
        "normalize-null": {"normalize": None},
        "direction-null": {"truncation_direction": None},
        "direction-middle": {"truncation_direction": "middle"},
        "dimensions-float": {"dimensions": 128.0},
        "dimensions-text": {"dimensions": "8"},
    }
    for name, extra in wrong.items():
        yield Row(
            name=f"10-{name}",
            body={"inputs": "a", **extra},
            status=422,
            kind="Validation",
            fragment=f"`{next(iter(extra))}`",
        )
    for key in ("truncate", "prompt_name", "dimensions", "never_heard_of"):
        yield _embed(f"11-{key}-null", "a", 200, **{key: None})
    yield Row(
        name="15-prompt",
        body={"inputs": "a", "prompt_name": "nope"},
        status=422,
        kind="Validation",
        fragment="no prompts",
    )
    yield Row(
        name="15-prompt-code",
        path=OPENAI,
        body={"input": "a", "prompt_name": "nope"},
        status=422,
        kind="Validation",
        code="unknown_prompt",
    )


def _lengths() -> Iterator[Row]:
    yield Row(
        name="16-600-tokens-whole",
        body={"inputs": LONG_TEXT, "truncate": False},
        status=422,
        kind="Validation",
        fragment="must have less than 256 tokens. Given:",
    )
    yield _embed("16-600-tokens-cut", LONG_TEXT, 200, truncate=True)
    yield _embed("16-600-tokens-default", LONG_TEXT, 200)
    yield _embed("17-256-tokens", "hello " * 254, 200, truncate=False)
    yield _embed("17-257-tokens", "hello " * 255, 422, truncate=False)
    yield Row(
        name="19-surrogate",
        body=b'{"inputs":"\\ud800"}',
        status=422,
        kind="Validation",
        fragment="surrogate",
    )
    yield Row(
        name="19-surrogate-code",
        path=OPENAI,
        body=b'{"input":"\\ud800"}',
        status=422,
        kind="Validation",
        code="invalid_value",
    )
    yield Row(
        name="19-second-surrogate",
        body=b'{"inputs":["a","\\ud800"]}',
        status=422,
        kind="Validation",
        fragment="(item 1)",
    )


def _openai() -> Iterator[Row]:
    def row(name: str, body: object, status: int, *, kind: str | None, code: str | None) -> Row:
        return Row(name=name, path=OPENAI, body=body, status=status, kind=kind, code=code)

    yield row("31-empty", {"input": ""}, 400, kind="Empty", code="empty_input")
    both = {"input": "a", "messages": MESSAGES}
    wrong: Mapping[str, Mapping[str, object]] = {
        "33-input-and-messages": both,
        "33-input-null": {"input": None},
        "36-encoding-int8": {"input": "a", "encoding_format": "int8"},
        "37-truncate-to-0": {"input": "a", "truncate_prompt_tokens": 0},
        "37-truncate-to-257": {"input": "a", "truncate_prompt_tokens": 257},
        "47-tier-gold": {"input": "a", "service_tier": "gold"},
    }
    for name, body in wrong.items():
        yield row(name, body, 422, kind="Validation", code="invalid_value")
    yield row("34-messages", {"messages": MESSAGES}, 424, kind="Backend", code="unsupported_task")
    fine: Mapping[str, Mapping[str, object]] = {
        "36-encoding-null": {"encoding_format": None},
        "36-encoding-absent": {},
        "37-truncate-to-limit": {"truncate_prompt_tokens": -1},
        "47-tier-priority": {"service_tier": "priority"},
    }
    for name, extra in fine.items():
        yield row(name, {"input": "a", **extra}, 200, kind=None, code=None)


def _tasks() -> Iterator[Row]:
    """Routes of other kinds of models; what can be told without one comes first."""

    def rank(name: str, status: int, kind: str, fragment: str, **candidates: object) -> Row:
        return Row(
            name=name,
            path="/rerank",
            body={"query": "q", **candidates},
            status=status,
            kind=kind,
            fragment=fragment,
        )

    yield rank("20-rerank", 424, "Backend", "model is not a re-ranker model", texts=["a"])
    for path, fragment in {
        "/predict": "Model is not a classifier model",
        "/embed_sparse": "Model is not an embedding model with SPLADE pooling",
        "/predict_tokens": "Model is not a token classification model",
    }.items():
        yield Row(
            name=f"21{path.replace('/', '-')}",
            path=path,
            body={"inputs": "a"},
            status=424,
            kind="Backend",
            fragment=fragment,
        )
    for dialect in ("texts", "documents"):
        message = f"`{dialect}` cannot be empty"
        yield rank(f"22-no-{dialect}", 400, "Empty", message, **{dialect: []})
    both = {"texts": ["a"], "documents": ["a"]}
    yield rank("23-both-dialects", 422, "Validation", "exactly one of", **both)
    yield rank("23-no-dialect", 422, "Validation", "exactly one of")
    yield _similarity("28-no-sentences", 0, 400, "Empty", "`inputs.sentences` cannot be empty")
    yield _similarity("28-1024-sentences", 1024, 422, "Validation", "batch size 1025")


def _similarity(name: str, count: int, status: int, kind: str, fragment: str) -> Row:
    inputs = {"source_sentence": "a", "sentences": ["b"] * count}
    return Row(
        name=name,
        path="/similarity",
        body={"inputs": inputs},
        status=status,
        kind=kind,
        fragment=fragment,
    )


def _protocol() -> Iterator[Row]:
    good = b'{"inputs":"a"}'
    yield Row(name="38-no-type", body=good, status=415, kind="UnsupportedMediaType", headers={})
    yield Row(
        name="38-plain-text",
        body=good,
        status=415,
        kind="UnsupportedMediaType",
        headers={"content-type": "text/plain"},
    )
    for name, raw in {"brace": b"{", "nothing": b"", "nan": b'{"inputs":NaN}'}.items():
        yield Row(name=f"39-{name}", body=raw, status=400, kind="Malformed")
    yield Row(name="40-unknown-path", path="/nope", body=good, status=404, kind="NotFound")
    yield Row(
        name="40-v1-unknown-path",
        path="/v1/nope",
        body=good,
        status=404,
        kind="NotFound",
        code="not_found",
    )
