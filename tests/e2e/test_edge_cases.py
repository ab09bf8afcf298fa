"""The HTTP contract's table of edge cases: every alternative of every row, on real servers."""

from collections.abc import Callable

import pytest

from edge_case import PLAIN, SEVERAL, EdgeCase
from edge_decisions import decision_cases
from edge_inputs import input_cases
from edge_openai import openai_cases
from edge_protocol import protocol_cases
from edge_tasks import task_cases
from http_client import HttpClient
from server_process import ServerProcess

CASES = sorted(
    (*input_cases(), *task_cases(), *openai_cases(), *protocol_cases(), *decision_cases()),
    key=lambda case: case.name,
)
NUM_ROWS = 54
FIXTURES = {PLAIN: "minilm_server", SEVERAL: "several_server"}


@pytest.fixture(scope="session")
def server_of(request: pytest.FixtureRequest) -> Callable[[str], ServerProcess]:
    """The server of that name."""
    return lambda name: request.getfixturevalue(FIXTURES[name])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_edge(server_of: Callable[[str], ServerProcess], case: EdgeCase) -> None:
    with HttpClient(server_of(case.server).base_url) as client:
        case.check(client)


def test_every_row_is_there_once() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert {int(name.split("_")[1]) for name in names} == set(range(1, NUM_ROWS + 1))
