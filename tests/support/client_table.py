"""The published clients that the kit runs: where each is installed, what is asked, what it cannot.

Knows nothing of servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client, or a family of packages that are used together.

    Attributes:
        name: of its test file, `tests/clients/test_NAME.py`.
        packages: distributions whose versions the report names.
        group: of its requirements, `tests/clients/requirements-GROUP.txt`.
        asked: what its tests do.
        gaps: what cannot work, and whose doing it is.
    """

    name: str
    packages: Sequence[str]
    group: str
    asked: str
    gaps: Sequence[str] = ()


PROJECT_GROUPS = ("parity", "load")
"""The groups that see the environment of the project, too."""

CLIENTS: Sequence[Client] = (
    Client(
        name="openai",
        packages=("openai",),
        group="sdks",
        asked="embeddings as base64 and float, ids, dimensions, models; 400, 401, 404, 422; 429 "
        "told and retried",
    ),
    Client(
        name="huggingface_hub",
        packages=("huggingface_hub",),
        group="sdks",
        asked="feature_extraction sync and async, sentence_similarity, text_classification; 400, "
        "401, 422",
        gaps=(
            "`text_classification` takes the first entry of the flat list that TEI answers to one "
            "text, which is the best label.",
            "`token_classification` reads the flat lists of another service, with other names: "
            "`/predict_tokens` answers a list per text.",
        ),
    ),
    Client(
        name="cohere",
        packages=("cohere",),
        group="sdks",
        asked="rerank of v1 and v2, documents as text and as objects, max_tokens_per_doc; 400, "
        "401, 422",
        gaps=("Its `embed` and `classify` go to routes of Cohere alone.",),
    ),
    Client(
        name="rerankers",
        packages=("rerankers",),
        group="sdks",
        asked="rank as text-embeddings-inference, cohere and jina, score",
        gaps=(
            "`score` of its API rankers takes no text, only a `Document`: \"'str' object has no "
            "attribute 'text'\".",
        ),
    ),
    Client(
        name="baseten",
        packages=("baseten-performance-client",),
        group="sdks",
        asked="1000 texts by 128, rerank, classify, batch_post; MessagePack and zstd on the wire; "
        "400, 401; 429 retried",
    ),
    Client(
        name="tei_client",
        packages=("tei-client",),
        group="sdks",
        asked="info, embed, embed_all, tokenize, decode, classify, rerank, prompt names; key",
        gaps=("It parses no error: a refusal comes back as the body of the error.",),
    ),
    Client(
        name="pytei",
        packages=("pytei-client",),
        group="sdks",
        asked="embed, alone and in batches, its cache; 400, 401, 422",
    ),
    Client(
        name="schemathesis",
        packages=("schemathesis",),
        group="sdks",
        asked="every operation of the API document with all checks, for every kind of model",
    ),
    Client(
        name="typesafe",
        packages=("typesafe-sdk",),
        group="decisions",
        asked="typed noul, choice and score sync and async, states of every form, own response "
        "models, models, zstd bodies; 401, 404, 415, 422",
        gaps=("It sends images as multipart/form-data, which a model of text refuses: 415.",),
    ),
    Client(
        name="decision_clients",
        packages=("jev-lite", "pydecide", "system-one"),
        group="decisions",
        asked="typed noul, choice and score, labels, models; 401, 404, 422",
    ),
    Client(
        name="langchain",
        packages=("langchain-huggingface", "langchain-openai"),
        group="frameworks",
        asked="endpoint embeddings sync and async, OpenAI embeddings as texts and as ids; 401, 422",
        gaps=(
            "`langchain-huggingface` 1.2.2 and 1.2.3 take no server of one's own: \"`model` must "
            'be a HuggingFace repo ID, not a URL."',
            "`OpenAIEmbeddings` by default sends ids of OpenAI's vocabulary, which mean other "
            "words here: use `check_embedding_ctx_length=False`.",
        ),
    ),
    Client(
        name="llama_index",
        packages=(
            "llama-index-embeddings-text-embeddings-inference",
            "llama-index-postprocessor-tei-rerank",
        ),
        group="frameworks",
        asked="embeddings sync and async, rerank with a token",
        gaps=("The reranker sends its `auth_token` as it is: write `Bearer KEY`.",),
    ),
    Client(
        name="haystack",
        packages=("haystack-ai", "huggingface-api-haystack"),
        group="frameworks",
        asked="text, document and sparse embedders, ranker sync and async; 401",
    ),
    Client(
        name="litellm",
        packages=("litellm",),
        group="frameworks",
        asked="infinity/ embedding sync and async, rerank as infinity/, cohere/, jina_ai/ and "
        "hosted_vllm/; 400, 401",
        gaps=(
            "`dimensions` is sent as `output_dimension`, a field that the API does not have.",
            "`infinity/` rerank needs `return_documents=False`; its default puts an object where a "
            'text belongs: "results.0.document.text Input should be a valid string". The other '
            "providers read documents.",
        ),
    ),
    Client(
        name="infinity_client",
        packages=("infinity-client",),
        group="older",
        asked="embeddings, models, rerank, token vectors in base64; 401, 422",
        gaps=(
            "It asks for 0 dimensions unless it is told `dimensions=UNSET`; 0 is refused.",
            "Its classify reads a list of labels with scores, which `/v1/classify` does not give, "
            "and its rerank document is a text.",
        ),
    ),
    Client(
        name="tei_openapi_client",
        packages=("text-embeddings-inference-client",),
        group="older",
        asked="embed sync and async, info, health, metrics; 401, 422, 424",
        gaps=("Its OpenAI call goes to `/openai`, which TEI has given up.",),
    ),
    Client(
        name="py_txi",
        packages=("py-txi", "huggingface-hub"),
        group="older",
        asked="encode one and many, through a stand-in for the container engine",
        gaps=('With huggingface-hub from 1.0 on, its second call fails: "Event loop is closed".',),
    ),
    Client(
        name="embed_parity",
        packages=("embed-parity", "sentence-transformers"),
        group="parity",
        asked="all 100 probes (three are blank and skipped), geometry, neighbours, batches, 16 "
        "concurrent requests, lengths to 1024 tokens",
    ),
    Client(
        name="mteb",
        packages=("mteb", "sentence-transformers"),
        group="parity",
        asked="an STS task of 200 pairs, evaluated through `/v1/embeddings` and with the "
        "reference; the score within 0.1 points",
        gaps=(
            "Its own models for such servers fetch a tokenizer of OpenAI's; ours is a class of its "
            "encoder protocol. Its public tasks are downloaded; ours is made in the test.",
        ),
    ),
    Client(
        name="locust",
        packages=("locust",),
        group="load",
        asked="eight users, seven shapes from 1 x 32 to 32 x 512 words, three times each: no "
        "error, every reply counted, memory flat",
    ),
    Client(
        name="aiperf",
        packages=("aiperf",),
        group="load",
        asked="profile of embeddings by 32, of hf-tei-rankings and of cohere-rankings, 40 requests "
        "each",
        gaps=(
            "Its `builtin` tokenizer is a download, and with `HF_HUB_OFFLINE=1` a local one is "
            "refused: \"Repo id must be in the form 'repo_name'\": give `--tokenizer` a folder.",
        ),
    ),
    Client(
        name="guidellm",
        packages=("guidellm",),
        group="load",
        asked="run with synthetic texts against `/v1/embeddings`, 40 requests",
    ),
)
