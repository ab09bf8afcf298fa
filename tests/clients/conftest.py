"""Where the servers are, and which of the clients are installed here.

The client kit runs each client in an environment of its own and names its servers; a run of the
whole test-suite starts servers itself and tests the clients that its environment has.
"""

import importlib.util
import json
import os
from collections.abc import Iterator

import pytest

from client_kit import SERVERS, ServerUrl

URLS_VARIABLE = "INFINITY_CLIENT_SERVERS"
_PACKAGES = {
    "aiperf": ["aiperf"],
    "baseten": ["baseten_performance_client"],
    "cohere": ["cohere"],
    "decision_clients": ["decide", "jev_lite", "system_one"],
    "embed_parity": ["embed_parity", "sentence_transformers"],
    "guidellm": ["guidellm"],
    "haystack": ["haystack_integrations"],
    "huggingface_hub": ["huggingface_hub"],
    "infinity_client": ["infinity_client"],
    "langchain": ["langchain_huggingface", "langchain_openai"],
    "litellm": ["litellm"],
    "llama_index": ["llama_index"],
    "locust": ["locust"],
    "mteb": ["mteb", "sentence_transformers"],
    "openai": ["openai"],
    "py_txi": ["py_txi"],
    "pytei": ["pytei"],
    "rerankers": ["rerankers"],
    "schemathesis": ["schemathesis"],
    "tei_client": ["tei_client"],
    "tei_openapi_client": ["text_embeddings_inference_client"],
    "typesafe": ["typesafe_sdk"],
}


def _is_here(packages: list[str]) -> bool:
    return all(importlib.util.find_spec(package) is not None for package in packages)


collect_ignore = [
    f"test_{name}.py" for name, packages in _PACKAGES.items() if not _is_here(packages)
]


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[ServerUrl]:
    given = os.environ.get(URLS_VARIABLE)
    if given is not None:
        urls = json.loads(given)
        assert urls.keys() == SERVERS.keys()
        yield urls.__getitem__
        return
    from client_servers import RunningServers

    minilm = request.getfixturevalue("minilm_artifact")
    compiled = request.getfixturevalue("compiled_artifact")
    with RunningServers(minilm, compiled) as running:
        yield running
