"""docs/configuration.md is what the options and the parser say, and its examples work."""

import json

import pytest

from configuration_page import PAGE, Example, examples_of, updated
from infinity_v3.server.config import TOPICS, all_options
from infinity_v3.server.config_report import render_json

TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = examples_of(TEXT)


def test_the_page_is_up_to_date() -> None:
    assert updated(TEXT) == TEXT, "run: make docs"


def test_every_option_has_one_row_under_a_topic() -> None:
    for option in all_options():
        assert option.group in TOPICS
        assert TEXT.count(f"`--{option.name}` | ") == 1


def test_there_are_examples_with_and_without_a_file() -> None:
    assert {bool(example.toml) for example in EXAMPLES} == {True, False}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.command[:40])
def test_examples_are_accepted_without_a_warning(example: Example) -> None:
    loaded = example.load()
    assert loaded.warnings == ()
    assert json.loads(render_json(loaded))["models"]
    assert example.outcome()
