"""Fixtures that serve over loopback."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fake_service import vector_of
from infinity_v3.artifacts.manifest import Kind
from loopback import Client, ClientOf, StartServer, VectorOf, running


@pytest.fixture
def start_server() -> StartServer:
    """A context manager that runs a server with the given options and yields a client."""
    return running


@pytest.fixture(scope="module")
def shared() -> Iterator[ClientOf]:
    """Servers with default options, one per kind, for tests that leave no trace."""
    clients: dict[Kind, Client] = {}
    with ExitStack() as stack:

        def client_of(kind: Kind) -> Client:
            if kind not in clients:
                clients[kind] = stack.enter_context(running(kind=kind))
            return clients[kind]

        yield client_of


@pytest.fixture
def client_of(shared: ClientOf) -> ClientOf:
    """Clients of the shared servers."""

    def settled(kind: Kind) -> Client:
        client = shared(kind)
        client.service.gate = None
        client.service.failure = None
        return client

    return settled


@pytest.fixture
def client(client_of: ClientOf) -> Client:
    """A client of the shared embedding server."""
    return client_of(Kind.EMBEDDING)


@pytest.fixture
def classifier(client_of: ClientOf) -> Client:
    """A client of the shared server of a model with three labels."""
    return client_of(Kind.CLASSIFIER)


@pytest.fixture
def reranker(client_of: ClientOf) -> Client:
    """A client of the shared server of a model with one label."""
    return client_of(Kind.RERANKER)


@pytest.fixture
def decider(client_of: ClientOf) -> Client:
    """A client of the shared server of a decision model."""
    return client_of(Kind.DECISION)


@pytest.fixture(scope="session")
def vector() -> VectorOf:
    """The raw vector that the service without a model gives to an item."""
    return vector_of
