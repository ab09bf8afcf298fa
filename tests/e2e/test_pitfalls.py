"""The pitfalls of the field are numbered; each number has its test in one of the files beside."""

import re
from pathlib import Path

NUM_PITFALLS = 41
TEST = re.compile(r"^ *def test_pit_(\d\d)_", re.MULTILINE)


def test_every_pitfall_has_a_test() -> None:
    texts = [path.read_text() for path in sorted(Path(__file__).parent.glob("test_pitfalls_*.py"))]
    numbers = {int(number) for text in texts for number in TEST.findall(text)}
    assert numbers == set(range(1, NUM_PITFALLS + 1))
