"""The modules of a sentence-transformers checkpoint, as `modules.json` lists them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_objects, shown
from infinity_v3.model_specs.prompts import (
    CROSS_ENCODER_TYPE,
    EMBEDDING_MODEL_TYPE,
    MULTI_VECTOR_TYPE,
    PYLATE_TYPE,
    SPARSE_ENCODER_TYPE,
)


class ModuleKind(str, Enum):
    """What a module does; others aren't compiled."""

    TRANSFORMER = "Transformer"
    POOLING = "Pooling"
    DENSE = "Dense"
    NORMALIZE = "Normalize"
    SPLADE_POOLING = "SpladePooling"
    MULTI_VECTOR_MASK = "MultiVectorMask"
    LOGIT_SCORE = "LogitScore"


_MAX_FOLDER_BYTES = 200
_SHOWN_CHARACTERS = 58
_HOMES = (
    "sentence_transformers.models",
    "sentence_transformers.base.modules",
    "sentence_transformers.sentence_transformer.modules",
    "sentence_transformers.sparse_encoder.models",
    "sentence_transformers.sparse_encoder.modules",
    "sentence_transformers.cross_encoder.modules",
    "sentence_transformers.multi_vector_encoder.modules",
)
_CLASSES: Mapping[str, ModuleKind] = {
    **{kind.value: kind for kind in ModuleKind},
    "MLMTransformer": ModuleKind.TRANSFORMER,
}


def _module_of(name: str) -> str:
    """File of a class: "SpladePooling" -> "splade_pooling"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


_KINDS: Mapping[str, ModuleKind] = {
    **{
        f"{home}.{path}": kind
        for name, kind in _CLASSES.items()
        for home in _HOMES
        # Releases differ in whether the file of the class is part of its name.
        for path in (name, f"{name}.{name}", f"{_module_of(name)}.{name}")
    },
    "pylate.models.Dense": ModuleKind.DENSE,
    "pylate.models.Dense.Dense": ModuleKind.DENSE,
}
"""Dotted class name in modules.json -> kind, over all releases of the two libraries."""

_LATE_INTERACTION = (
    "TD*(MN?|NM?)?",
    "Transformer, any Dense, then MultiVectorMask and Normalize, each at most once",
)
_ORDERS: Mapping[str, tuple[str, str]] = {
    EMBEDDING_MODEL_TYPE: (
        "TPD*N?",
        "Transformer, Pooling, then any Dense, then at most one Normalize",
    ),
    SPARSE_ENCODER_TYPE: ("TS", "Transformer, then SpladePooling"),
    CROSS_ENCODER_TYPE: ("TL?", "Transformer, then at most one LogitScore"),
    MULTI_VECTOR_TYPE: _LATE_INTERACTION,
    PYLATE_TYPE: _LATE_INTERACTION,
}
"""The only order that is compiled per class: of the modules' first letters, and in words."""

_LETTERS = {kind: kind.value[0] for kind in ModuleKind}
_CLASS_BY_MODULE = {
    ModuleKind.SPLADE_POOLING: SPARSE_ENCODER_TYPE,
    ModuleKind.LOGIT_SCORE: CROSS_ENCODER_TYPE,
    ModuleKind.MULTI_VECTOR_MASK: MULTI_VECTOR_TYPE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One entry; `folder` is relative to the checkpoint, empty for its root."""

    kind: ModuleKind
    folder: str


def read_module_list(file: Path) -> tuple[Module, ...] | None:
    """Read modules.json, None when there is none.

    Raises:
        UsageError: a module of another type, or outside of the checkpoint.
        RunFailedError: the file can't be read.
    """
    if not is_present(file):
        return None
    return tuple(_read_module(entry) for entry in read_objects(file))


def class_of(modules: tuple[Module, ...]) -> str:
    """The class of sentence-transformers that saves such modules, where no file states it."""
    for module in modules:
        if module.kind in _CLASS_BY_MODULE:
            return _CLASS_BY_MODULE[module.kind]
    return EMBEDDING_MODEL_TYPE


def check_order(file: Path, modules: tuple[Module, ...], model_class: str) -> None:
    """Refuse modules that are not compiled together.

    Args:
        file: modules.json.
        modules: in order.
        model_class: a class that `prompts` knows.

    Raises:
        UsageError: naming the order that is expected of the class, and the one found.
    """
    pattern, expected = _ORDERS[model_class]
    letters = "".join(_LETTERS[module.kind] for module in modules)
    if not re.fullmatch(pattern, letters):
        found = ", ".join(module.kind.value for module in modules) or "nothing"
        raise UsageError(f"{file}: expected {expected}; found {found}")


def _read_module(entry: JsonObject) -> Module:
    name = entry.text("type")
    if name is None:
        entry.refuse("type", "the class name of a module")
    if name not in _KINDS:
        supported = ", ".join(kind.value for kind in ModuleKind)
        # The class itself stands last, where a long name would be cut.
        found = name if len(name) < _SHOWN_CHARACTERS else name.rpartition(".")[2]
        raise UsageError(
            f"{entry.where('type')}: expected one of {supported} of sentence-transformers, "
            f"found {shown(found)}, which this release does not compile"
        )
    return Module(kind=_KINDS[name], folder=_read_folder(entry))


def _read_folder(entry: JsonObject) -> str:
    folder = entry.text("path") or ""
    parts = folder.split("/") if folder else []
    is_odd = any(
        part in ("", ".", "..") or not part.isprintable() or "\\" in part for part in parts
    )
    if is_odd or len(folder.encode()) > _MAX_FOLDER_BYTES:
        entry.refuse("path", "a folder inside the checkpoint")
    return folder
