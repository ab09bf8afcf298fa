"""The walk-through of docs/adding-a-model.md shows the code that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding-a-model.md").read_text(encoding="utf-8")
SPEC, RECIPE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MAX_LINES = 80


def _dedented(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def test_the_facts_are_those_of_the_family() -> None:
    assert (ROOT / "model_specs" / "eurobert.py").read_text(encoding="utf-8") == SPEC


def test_the_tiny_checkpoint_is_that_of_the_tests() -> None:
    source = (ROOT / "tests/support/tiny_encoder_families.py").read_text(encoding="utf-8")
    assert "\n".join(_dedented(RECIPE)) in "\n".join(_dedented(source))


def test_a_family_takes_few_lines() -> None:
    # An import and an entry in the registry, and a name in a test file.
    assert len(SPEC.splitlines()) + len(RECIPE.splitlines()) + 3 <= MAX_LINES
