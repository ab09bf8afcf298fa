"""`pytei-client`: the one route that it has, cached and not."""

import numpy as np
import pytest
from pytei import TEIClient
from pytei.store import DuckDBEmbeddingStore

from client_kit import TEXTS, ServerUrl, ask, series


def test_embed(server: ServerUrl) -> None:
    url = server("embedding")
    client = TEIClient(url=url)
    direct = np.array(ask(f"{url}/embed", {"inputs": TEXTS}), np.float32)
    assert np.array_equal(np.array(client.embed(list(TEXTS))), direct)
    alone = ask(f"{url}/embed", {"inputs": "alone", "normalize": False})
    assert np.array_equal(client.embed("alone", normalize=False), np.array(alone[0], np.float32))


def test_what_is_cached_is_not_asked_for_again(
    server: ServerUrl, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "store.duckdb"
    client = TEIClient(embedding_store=DuckDBEmbeddingStore(str(path)), url=server("embedding"))
    first = client.embed("a text")
    before = series(server("embedding"), "te_request_count")
    assert np.array_equal(client.embed("a text"), first)
    assert series(server("embedding"), "te_request_count") == before


def test_refusals_are_told(server: ServerUrl) -> None:
    with pytest.raises(RuntimeError, match="400"):
        TEIClient(url=server("embedding")).embed("")
    with pytest.raises(RuntimeError, match="422"):
        TEIClient(url=server("embedding")).embed("a", prompt_name="nope")
    with pytest.raises(RuntimeError, match="401"):
        TEIClient(url=server("keyed")).embed("a")
