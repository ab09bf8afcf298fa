"""The four forms of a reference, and nothing else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry.reference import Reference, is_marked, parse_reference

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", fullmatch=True)
IDS = st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)
ONE_OF_FOUR = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._+-]{0,99})"
    r"(:[A-Za-z0-9][A-Za-z0-9._+-]{0,99}|==[A-Za-z0-9][A-Za-z0-9._+-]{0,99}|@sha256:[0-9a-f]{64})?"
)
TEXTS = st.text() | st.text(alphabet="ab1.-:=@/ sha256", max_size=80) | IDS


@given(
    st.builds(Reference, name=NAMES)
    | st.builds(Reference, name=NAMES, channel=NAMES)
    | st.builds(Reference, name=NAMES, version=NAMES)
    | st.builds(Reference, name=NAMES, id=IDS)
)
def test_what_is_written_is_read_back(reference: Reference) -> None:
    assert parse_reference(reference.text) == reference


@given(TEXTS)
def test_only_the_four_forms_are_read(text: str) -> None:
    """Against a regular expression, which the parser does not use."""
    if ONE_OF_FOUR.fullmatch(text) is None:
        with pytest.raises(UsageError):
            parse_reference(text)
    else:
        assert parse_reference(text).text == text


@pytest.mark.parametrize(
    ("text", "marked"),
    [("minilm", False), ("minilm:prod", True), ("minilm==1", True), ("m@sha256:0", True)],
)
def test_marks_tell_references_from_paths(text: str, marked: bool) -> None:
    assert is_marked(text) is marked
