"""The examples of docs/decisions.md are answered as the page says."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from infinity_v3.server.reply_schemas import DecideReply
from loopback import Client

TEXT = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text(encoding="utf-8")
_CURL = re.compile(r"^curl localhost:3000(?P<path>/\S+) .*?-d '(?P<body>[^']*)'", re.M | re.S)
EXAMPLES = [(match["path"], json.loads(match["body"])) for match in _CURL.finditer(TEXT)]
(REPLY,) = re.findall(r"^```json\n(.*?)^```", TEXT, re.M | re.S)


@pytest.mark.parametrize(("path", "body"), EXAMPLES)
def test_examples_are_answered(decider: Client, path: str, body: dict[str, object]) -> None:
    answer = decider.post(path, body)
    assert answer.status == (422 if "box" in json.dumps(body) else 200), answer.body


def test_there_are_examples_of_every_type_and_of_an_error() -> None:
    shown = json.dumps(EXAMPLES)
    assert len(EXAMPLES) == 4
    assert all(f'"type": "{kind}"' in shown for kind in ("noul", "choice", "score", "box"))


def test_the_reply_has_the_form_of_a_reply() -> None:
    shown = msgspec.json.decode(REPLY, type=DecideReply, strict=True)
    (_, body), *_ = EXAMPLES
    assert list(shown.answers) == list(body["questions"])
