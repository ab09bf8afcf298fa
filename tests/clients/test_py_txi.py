"""`py-txi`, which starts its server from an image: here the image runs already."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest

from client_kit import TEXTS, ServerUrl, ask
from docker_stand_in import DockerStandIn


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    with DockerStandIn() as engine, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.host)
        yield


@pytest.mark.usefixtures("engine")
def test_encode(server: ServerUrl) -> None:
    # The library looks for its container engine when it is imported.
    from py_txi import TEI, TEIConfig

    url = server("embedding")
    ports = {"80/tcp": ("127.0.0.1", urlsplit(url).port)}
    client = TEI(TEIConfig(model_id="any", ports=ports, pooling="mean"))
    try:
        direct = [ask(f"{url}/embed", {"inputs": text}) for text in TEXTS]
        assert np.array_equal(client.encode(TEXTS[0]), np.array(direct[0], np.float32))
        found = np.array(client.encode(list(TEXTS)))
        assert np.allclose(found, np.array(direct, np.float32), atol=1e-5)
        raw = client.encode(TEXTS[0], normalize=False)
        body = {"inputs": TEXTS[0], "normalize": False}
        assert np.array_equal(raw, np.array(ask(f"{url}/embed", body), np.float32))
    finally:
        client.close()
