"""Fixtures that serve over loopback."""

from collections.abc import Iterator

import pytest

from loopback import Client, StartServer, VectorOf, running, vector_of


@pytest.fixture
def start_server() -> StartServer:
    """A context manager that runs a server with the given options and yields a client."""
    return running


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    """One server with default options for tests that leave no trace."""
    with running() as client:
        yield client


@pytest.fixture
def client(shared: Client) -> Client:
    """A client of the shared server."""
    shared.service.gate = None
    shared.service.failure = None
    return shared


@pytest.fixture(scope="session")
def vector() -> VectorOf:
    """The raw vector that the service without a model gives to an item."""
    return vector_of
