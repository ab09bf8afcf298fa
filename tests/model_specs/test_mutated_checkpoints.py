"""Whatever stands in the JSON files of a checkpoint, the answer is values or one sentence."""

import copy
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.model_specs.embedding_head import resolve_embedding_head
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.kind import resolve_kind
from infinity_v3.model_specs.length_limit import length_limit
from infinity_v3.model_specs.registry import match
from tiny_checkpoints import TinyDense, make_tiny_checkpoint

FILES = (
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**20, max_value=10**40)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["..", "/", "a/../b", "\u0000", "\ud800", "bert", "llama", "Dense"])
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mutated") / "model"
    layers, prompts = (TinyDense(out_features=32),), {"query": "query: "}
    make_tiny_checkpoint("bert", path, dense=layers, prompts=prompts, max_seq_length=64)
    (path / "model.safetensors").unlink()
    # The vocabulary says nothing here and would swallow most mutations.
    content = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"], content["added_tokens"] = {}, []
    (path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def victim(pristine: Path) -> Path:
    return Path(shutil.copytree(pristine, pristine.with_name("victim")))


def read_everything(path: Path) -> bool:
    """Whether the checkpoint was taken; anything but a UsageError of one sentence comes through."""
    try:
        config = read_hub_config(path)
        spec = match(config)
        kind = resolve_kind(config, spec, None, None)
        limit = length_limit(config, spec)
        width = resolve_embedding_head(config, spec).dimensions if kind is Kind.EMBEDDING else 1
    except UsageError as error:
        is_one_sentence = "\n" not in str(error) and len(str(error)) < 1500
        if not is_one_sentence:
            raise
        return False
    assert 1 <= limit.rule.max_tokens <= limit.position_rows - limit.position_offset
    assert width >= 1
    return True


def places(document: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document, containers before what they hold."""
    yield path
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, (*path, key))
    if isinstance(document, list):
        for index, value in enumerate(document):
            yield from places(value, (*path, index))


def put(document: object, place: tuple[str | int, ...], value: object) -> object:
    """A copy of the document with another value at one place."""
    if not place:
        return value
    changed = copy.deepcopy(document)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]  # type: ignore[index]
    inner[place[-1]] = value  # type: ignore[index]
    return changed


def test_checkpoint_is_taken_as_it_is(pristine: Path) -> None:
    assert read_everything(pristine)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_other_values_at_any_place(
    pristine: Path, victim: Path, name: str, data: st.DataObject
) -> None:
    document = json.loads((pristine / name).read_text(encoding="utf-8"))
    place = data.draw(st.sampled_from(list(places(document))))
    changed = put(document, place, data.draw(VALUES))
    (victim / name).write_text(json.dumps(changed), encoding="utf-8")
    try:
        read_everything(victim)
    finally:
        shutil.copyfile(pristine / name, victim / name)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_other_bytes(pristine: Path, victim: Path, name: str, data: st.DataObject) -> None:
    content = bytearray((pristine / name).read_bytes())
    randomness = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.integers(1, 4))):
        content[randomness.randrange(len(content))] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(content), randomness.randrange(len(content))]))
    (victim / name).write_bytes(content[:end])
    try:
        read_everything(victim)
    finally:
        shutil.copyfile(pristine / name, victim / name)


@pytest.mark.parametrize("name", FILES)
def test_each_absent_file_is_refused_or_optional(pristine: Path, victim: Path, name: str) -> None:
    (victim / name).unlink()
    try:
        is_taken = read_everything(victim)
    finally:
        shutil.copyfile(pristine / name, victim / name)
    required = ("config.json", "1_Pooling/config.json", "2_Dense/config.json", "tokenizer.json")
    assert is_taken is (name not in required)
