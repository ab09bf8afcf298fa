"""Judges a model that was just loaded: complete, as deep as its file, floating-point and finite.

Knows nothing of how it was loaded.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from infinity_v3.compiler.checkpoint_files import CONFIG, find_files
from infinity_v3.compiler.safetensors_header import (
    FLOAT_DTYPES,
    CheckpointError,
    read_tensor_headers,
)

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
# What early releases called the parameters of a layer norm.
_OLD_NAMES = {"gamma": "weight", "beta": "bias"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingReport:
    """Names of weights that did not find their place, as whoever loaded them reports.

    Attributes:
        missing: parameters of the model that no file holds.
        mismatched: parameters whose shape in the file is another one: name, the file's shape, the
            model's.
        unexpected: tensors of the files that the model has no use for.
    """

    missing: tuple[str, ...]
    mismatched: tuple[tuple[str, Sequence[int], Sequence[int]], ...]
    unexpected: tuple[str, ...]


def check_loaded(path: Path, model: nn.Module, report: LoadingReport) -> None:
    """Refuse a model that is not the one of its checkpoint.

    Raises:
        CheckpointError: weights are absent, of another shape, left over although the architecture
            would use them in further layers, stored as whole numbers, or not finite.
    """
    _refuse_mismatched(path, report.mismatched)
    _refuse_missing(path, report.missing)
    _refuse_further_layers(path, model, report.unexpected)
    _refuse_whole_numbers(path, model)
    refuse_not_finite(path, model.named_parameters())


def refuse_not_finite(path: Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Refuse NaN and infinity.

    Args:
        path: the file or directory that the tensors were read from.
        tensors: name and floating-point values of each.

    Raises:
        CheckpointError: naming the first tensor that holds any.
    """
    for name, tensor in tensors:
        if not torch.isfinite(tensor).all():
            num_wrong = int((~torch.isfinite(tensor)).sum())
            raise CheckpointError(
                f"{path}: tensor {name}: expected finite numbers, found {num_wrong} of "
                f"{tensor.numel()} that are NaN or infinite; fetch the checkpoint again"
            )


def refuse_whole_numbers(path: Path, dtypes: Mapping[str, str]) -> None:
    """Refuse weights that are stored in another than a floating-point dtype.

    Args:
        path: the file that holds them.
        dtypes: dtype, as safetensors writes it, by name.

    Raises:
        CheckpointError: naming the first such tensor.
    """
    for name, dtype in dtypes.items():
        if dtype not in FLOAT_DTYPES:
            raise CheckpointError(
                f"{path}: tensor {name}: expected a floating-point dtype, found {dtype}; "
                "use the checkpoint in float32, float16 or bfloat16"
            )


def _refuse_mismatched(
    path: Path, mismatched: tuple[tuple[str, Sequence[int], Sequence[int]], ...]
) -> None:
    if mismatched:
        name, found, expected = min(mismatched, key=lambda entry: entry[0])
        raise CheckpointError(
            f"{path}: {len(mismatched)} of its weights have another shape than {CONFIG} asks for, "
            f"the first is {name}: expected {_shape(expected)}, found {_shape(found)}; {CONFIG} "
            "and the weights must come from one checkpoint"
        )


def _shape(sizes: Sequence[int]) -> str:
    return " x ".join(str(size) for size in sizes) or "one number"


def _refuse_missing(path: Path, names: tuple[str, ...]) -> None:
    if names:
        raise CheckpointError(
            f"{path}: {len(names)} weights that the architecture needs are absent, the first is "
            f"{min(names)}; use a complete checkpoint of this architecture"
        )


def _refuse_further_layers(path: Path, model: nn.Module, unexpected: tuple[str, ...]) -> None:
    patterns = {_NUMBER.sub("N", name) for name, _ in model.named_parameters()}
    numbered = {pattern for pattern in patterns if ".N." in pattern}
    further = [name for name in unexpected if _is_one_of(_NUMBER.sub("N", name), numbered)]
    if further:
        raise CheckpointError(
            f"{path / CONFIG}: expected as many layers as the weights are of, found fewer: "
            f"{len(further)} weights are left over, the first is {min(further)}; {CONFIG} and the "
            "weights must come from one checkpoint"
        )


def _refuse_whole_numbers(path: Path, model: nn.Module) -> None:
    parameters = {name for name, _ in model.named_parameters()}
    for file in find_files(path).weights:
        headers = read_tensor_headers(path / file)
        refuse_whole_numbers(
            path / file,
            {entry.name: entry.dtype for entry in headers if _is_one_of(entry.name, parameters)},
        )


def _is_one_of(name: str, known: set[str]) -> bool:
    """Whether a stored name, which may have the name of a whole model in front, is known."""
    stem, dot, last = name.rpartition(".")
    parts = f"{stem}{dot}{_OLD_NAMES.get(last, last)}".split(".")
    return any(".".join(parts[start:]) in known for start in range(len(parts)))
