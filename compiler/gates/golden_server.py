"""Asks an artifact as clients do: a real `infinity_v3` process on the loopback interface.

Knows nothing of what answers should be.
"""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler.gates.golden_file import Request
from infinity_v3.compiler.tune import question_of
from infinity_v3.compiler.tune_server import running_server

REPLY_TIMEOUT_S = 300.0
SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back: the decoded body of a 200, or why there is none."""

    document: object = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedServer:
    """One server that is ready."""

    port: int

    def ask(self, request: Request) -> Answer:
        """Send one request on a connection of its own.

        Raises:
            RunFailedError: the server went away or did not answer in time.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REPLY_TIMEOUT_S)
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", request.path, json.dumps(request.body), headers)
            reply = connection.getresponse()
            return _answer(reply.status, reply.read())
        except (OSError, http.client.HTTPException) as error:
            raise RunFailedError(
                f"line {request.line}: the server gave no answer: {describe(error)}"
            ) from error
        finally:
            connection.close()


@contextmanager
def asked_server(artifact: Artifact) -> Iterator[AskedServer]:
    """Serve an artifact under its own name inside the block.

    Raises:
        RunFailedError: the server did not start.
    """
    options = ("--served-model-name", artifact.manifest.name)
    question = question_of(artifact.manifest)
    with running_server(artifact.path, options, {}, question) as server:
        yield AskedServer(port=server.port)


def describe(error: Exception) -> str:
    """What an error says, or its name where it says nothing."""
    return str(error) or type(error).__name__


def _answer(status: int, body: bytes) -> Answer:
    text = body.decode(errors="replace")
    if status != http.client.OK:
        return Answer(problem=f"status {status}: {text[:SHOWN_CHARS]}")
    try:
        return Answer(document=json.loads(body))
    except ValueError:
        return Answer(problem=f"no JSON: {text[:SHOWN_CHARS]}")
