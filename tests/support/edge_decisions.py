"""Row 52: the decision routes of a model that decides nothing."""

from collections.abc import Iterator, Mapping

from edge_case import JSON_TYPE, SEVERAL, SHORT, WITH_KEY, EdgeCase
from http_client import HttpClient

PATHS = ("/v1/systemone", "/v1/decide")
BODY: Mapping[str, object] = {
    "state": "the door is open",
    "questions": {"open": {"type": "noul", "instructions": "Is the door open?"}},
}
NAMES: Mapping[str, Mapping[str, object]] = {
    "absent": {},
    "null": {"model": None},
    "usual": {"model": "jev-latest"},
}


def decision_cases() -> Iterator[EdgeCase]:
    """Every alternative of the row."""
    for path in PATHS:
        for name, field in NAMES.items():
            yield _refused(f"{_last(path)}_{name}", path, {**BODY, **field})
        yield _of_several(path)


def _refused(name: str, path: str, body: Mapping[str, object]) -> EdgeCase:
    def check(client: HttpClient) -> None:
        assert_unsupported(client, path, body, {})

    return EdgeCase(name=f"edge_52_{name}", check=check)


def _of_several(path: str) -> EdgeCase:
    def check(client: HttpClient) -> None:
        assert_unsupported(client, path, {**BODY, "model": SHORT}, WITH_KEY)

    return EdgeCase(name=f"edge_52_{_last(path)}_of_several", check=check, server=SEVERAL)


def assert_unsupported(
    client: HttpClient, path: str, body: Mapping[str, object], headers: Mapping[str, str]
) -> None:
    """A 424 in the shape of these routes."""
    reply = client.post(path, body, headers)
    assert reply.status == 424, (reply.status, reply.body[:500])
    assert reply.headers["content-type"] == JSON_TYPE
    expected = {"error_type": "unsupported_task", "message": "Model is not a decision model"}
    assert reply.json() == {"detail": expected}


def _last(path: str) -> str:
    return path.rpartition("/")[2]
