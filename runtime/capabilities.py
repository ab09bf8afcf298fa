"""What a model can do, and the sentence for what it cannot.

Knows nothing of requests.
"""

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.model_info import ModelInfo

EMBED, EMBED_TOKENS, EMBED_SPARSE = "embed", "embed_all", "embed_sparse"
SIMILARITY, RERANK = "similarity", "rerank"
CLASSIFY, CLASSIFY_TOKENS = "classify", "token_classify"
SCORE = "score"
DECIDE = "decide"
TOKENIZE = "tokenize"

_BY_KIND = {
    Kind.EMBEDDING: (EMBED, SIMILARITY, SCORE),
    Kind.SPARSE: (EMBED_SPARSE,),
    Kind.LATE_INTERACTION: (EMBED, EMBED_TOKENS),
    Kind.RERANKER: (RERANK, CLASSIFY, SCORE),
    Kind.CLASSIFIER: (CLASSIFY,),
    Kind.TOKEN_CLASSIFIER: (CLASSIFY_TOKENS,),
    Kind.DECISION: (DECIDE,),
}
_NO_EMBEDDING = "Model is not an embedding model"
_HINTS = {Kind.LATE_INTERACTION: "; use /embed_all", Kind.SPARSE: "; use /embed_sparse"}


def capabilities_of(kind: Kind, *, has_token_output: bool) -> frozenset[str]:
    """List what a model of a kind does; `has_token_output` matters to embedding models only."""
    found = {TOKENIZE, *_BY_KIND.get(kind, ())}
    if kind is Kind.EMBEDDING and has_token_output:
        found.add(EMBED_TOKENS)
    return frozenset(found)


def check_can_embed(info: ModelInfo) -> None:
    """Refuse models that do not give one vector per input.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    if info.kind is not Kind.EMBEDDING:
        raise _unsupported(_NO_EMBEDDING + _HINTS.get(info.kind, ""))


def check_can_embed_tokens(info: ModelInfo) -> None:
    """Refuse models that do not give vectors for tokens.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    if EMBED_TOKENS in info.capabilities:
        return
    if info.kind is Kind.SPARSE:
        raise _unsupported("`embed_all` is not available for SPLADE models")
    if info.kind is not Kind.EMBEDDING:
        raise _unsupported(_NO_EMBEDDING)
    raise _unsupported(
        "the artifact has no token output; "
        "compile it again: infinity-compile model --task embedding"
    )


def check_can_embed_sparse(info: ModelInfo) -> None:
    """Refuse models that are not sparse.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    _require(info, EMBED_SPARSE, f"{_NO_EMBEDDING} with SPLADE pooling")


def check_can_compare(info: ModelInfo) -> None:
    """Refuse models whose vectors cannot be compared by their cosine.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    _require(info, SIMILARITY, _NO_EMBEDDING)


def check_can_rank(info: ModelInfo) -> None:
    """Refuse models that do not score pairs.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    _require(info, RERANK, "model is not a re-ranker model")


def check_can_score(info: ModelInfo) -> None:
    """Refuse models that neither score pairs nor give vectors to compare.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    _require(info, SCORE, "Model is neither a re-ranker model nor an embedding model")


def check_can_classify(info: ModelInfo) -> None:
    """Refuse models without labels for texts.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    _require(info, CLASSIFY, "Model is not a classifier model")


def check_can_classify_tokens(info: ModelInfo) -> None:
    """Refuse models without labels for tokens.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    _require(info, CLASSIFY_TOKENS, "Model is not a token classification model")


def check_can_decide(info: ModelInfo) -> None:
    """Refuse models that answer no typed questions.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    _require(info, DECIDE, "Model is not a decision model")


def check_can_converse(info: ModelInfo) -> None:
    """Refuse models that make no text of a conversation.

    Raises:
        InferenceError: BACKEND, code unsupported_task.
    """
    if not info.has_chat_template:
        raise no_chat_template()


def no_chat_template() -> InferenceError:
    return _unsupported("the artifact has no chat template: it takes no conversations")


def _require(info: ModelInfo, capability: str, message: str) -> None:
    if capability not in info.capabilities:
        raise _unsupported(message)


def _unsupported(message: str) -> InferenceError:
    return InferenceError(ErrorKind.BACKEND, "unsupported_task", message)
