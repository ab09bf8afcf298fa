"""The header parser against the reference library, every kind of damage, and noise."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.compiler.safetensors_header import (
    CheckpointError,
    parse_header,
    read_tensor_headers,
)

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def write(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def tensor(
    begin: int = 0, end: int = 8, shape: object = (2,), dtype: str = "F32"
) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_agrees_with_the_reference_library(tmp_path: Path) -> None:
    tensors = {
        f"layer.{name}": torch.zeros((index + 1, 3), dtype=dtype)
        for index, (name, dtype) in enumerate(DTYPES.items())
    } | {"scalar": torch.tensor(1.0), "empty": torch.zeros((0, 4))}
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, {"format": "pt"})

    headers = {header.name: header for header in read_tensor_headers(path)}

    with safe_open(path, "pt") as file:
        assert headers.keys() == set(file.keys())
        for name in file.keys():  # noqa: SIM118  safe_open is no mapping
            view = file.get_slice(name)
            assert headers[name].dtype == view.get_dtype()
            assert list(headers[name].shape) == view.get_shape()
            assert headers[name].num_elements == tensors[name].numel()


def test_offsets_select_the_bytes_of_each_tensor(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(
        {"a": torch.tensor([1, 2], dtype=torch.int8), "b": torch.tensor([3], dtype=torch.int8)},
        path,
    )
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found = {h.name: content[start + h.begin : start + h.end] for h in read_tensor_headers(path)}
    assert found == {"a": b"\x01\x02", "b": b"\x03"}


@pytest.mark.parametrize(
    ("header", "data_bytes", "message"),
    [
        ({"a": tensor()}, 7, "truncated: its tensors need 8 bytes, found 7"),
        ({"a": tensor()}, 9, "1 bytes follow the last tensor"),
        (
            {"a": tensor(), "b": tensor(12, 20)},
            20,
            "'b': a gap in the data: expected offset 8, found 12",
        ),
        (
            {"a": tensor(), "b": tensor(4, 12)},
            12,
            "'b': an overlap in the data: expected offset 8, found 4",
        ),
        ({"a": tensor(4, 12)}, 12, "'a': a gap in the data"),
        ({"a": tensor(shape=(3,))}, 8, "need 12 bytes, its offsets span 8"),
        ({"a": tensor(8, 0)}, 8, "need 8 bytes, its offsets span -8"),
        ({"a": tensor(shape=(-1,))}, 8, "shape: expected whole numbers"),
        ({"a": tensor(shape=(2.0,))}, 8, "shape: expected whole numbers"),
        ({"a": tensor(shape=(True, 2))}, 8, "shape: expected whole numbers"),
        ({"a": tensor(shape="2")}, 8, "shape: expected an array"),
        ({"a": tensor(shape=[1] * 65)}, 8, "shape: expected an array of at most 64"),
        ({"a": tensor(shape=[2**62] * 9)}, 8, "need far too many bytes"),
        ({"a": tensor() | {"data_offsets": [0]}}, 8, "data_offsets: expected two numbers, found 1"),
        ({"a": tensor() | {"extra": 1}}, 8, "expected exactly dtype, shape and data_offsets"),
        (
            {"a": {"dtype": "F32", "shape": [2]}},
            8,
            "expected exactly dtype, shape and data_offsets",
        ),
        ({"a": 1}, 8, "expected exactly dtype, shape and data_offsets"),
        ({"a": tensor(dtype="Q4_0")}, 8, "unknown dtype 'Q4_0'"),
        ({"a": tensor() | {"dtype": 7}}, 8, "dtype: expected a string"),
        ({"a": tensor(dtype="F8_E4M3", end=2)}, 2, "'F8_E4M3' weights are not compiled"),
        ({"a": tensor(dtype="F8_E5M2", end=2)}, 2, "'F8_E5M2' weights are not compiled"),
        ({"a": tensor(dtype="F4", end=1)}, 1, "'F4' weights are not compiled"),
        ({"__metadata__": {"format": 1}}, 0, "__metadata__ must be an object of strings"),
        ({"__metadata__": []}, 0, "__metadata__ must be an object of strings"),
        (b"[1]", 0, "does not start with '{'"),
        (b"{", 0, "damaged header"),
        (b'{"a": NaN}', 0, "NaN is not a JSON value"),
        (b'{"\xff": 1}', 0, "damaged header"),
        (b'{"a":' + b"[" * 200_000, 0, "damaged header"),
        (b'{"a": 1' + b"0" * 5000 + b"}", 0, "damaged header"),
    ],
)
def test_damage_is_named(tmp_path: Path, header: object, data_bytes: int, message: str) -> None:
    path = write(tmp_path / "w.safetensors", header, bytes(data_bytes))
    with pytest.raises(CheckpointError) as caught:
        read_tensor_headers(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_used_twice_is_refused(tmp_path: Path) -> None:
    one = json.dumps(tensor())
    path = write(tmp_path / "w.safetensors", f'{{"a": {one}, "a": {one}}}'.encode(), bytes(8))
    with pytest.raises(CheckpointError, match="'a' is named twice"):
        read_tensor_headers(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated: expected a header, found 0 bytes"),
        (b"\x01\x02", "truncated: expected a header, found 2 bytes"),
        ((500).to_bytes(8, "little") + b"{}", "truncated: its header needs 500 bytes, found 2"),
        ((2**63).to_bytes(8, "little") + b"{}", "not a safetensors file: its header claims"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git-lfs pointer"),
    ],
)
def test_files_that_end_early_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_tensor_headers(path)


def test_every_truncation_of_a_real_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.ones(3), "b": torch.ones((2, 2))}, path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError):
            read_tensor_headers(path)


def test_an_unreadable_file_is_a_run_failure(tmp_path: Path) -> None:
    with pytest.raises(InfinityError) as caught:
        read_tensor_headers(tmp_path / "absent.safetensors")
    assert caught.value.exit_code == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
sizes = st.integers(min_value=-2, max_value=2**65) | st.integers(min_value=0, max_value=16)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*DTYPES, "F8_E4M3", "X"]) | json_values,
        "shape": st.lists(sizes, max_size=5) | json_values,
        "data_offsets": st.lists(sizes, min_size=2, max_size=2) | json_values,
    }
)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_noise_raises_nothing_but_our_errors(content: bytes) -> None:
    with suppress(InfinityError):
        parse_header("file", content)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(max_size=12), entries | json_values, max_size=4))
def test_odd_json_raises_nothing_but_our_errors(header: dict[str, object]) -> None:
    try:
        parsed = parse_header("file", json.dumps(header).encode())
    except InfinityError:
        return
    assert {item.name for item in parsed} == header.keys() - {"__metadata__"}


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_one_changed_byte_never_escapes(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.safetensors"
    save_file({"a": torch.ones(3), "b": torch.ones((2, 2), dtype=torch.float16)}, path)
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(min_value=0, max_value=len(content) - 1))
    content[position] = data.draw(st.integers(min_value=0, max_value=255))
    path.write_bytes(content)
    try:
        headers = read_tensor_headers(path)
    except InfinityError:
        return
    assert sum(header.end - header.begin for header in headers) == 3 * 4 + 4 * 2
