"""The modules of a sentence-transformers checkpoint, as `modules.json` lists them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_objects, shown


class ModuleKind(str, Enum):
    """What a module does; others aren't compiled."""

    TRANSFORMER = "Transformer"
    POOLING = "Pooling"
    DENSE = "Dense"
    NORMALIZE = "Normalize"


_MAX_FOLDER_BYTES = 200
_HOMES = (
    "sentence_transformers.models",
    "sentence_transformers.base.modules",
    "sentence_transformers.sentence_transformer.modules",
)
_KINDS: Mapping[str, ModuleKind] = {
    f"{home}.{name}": kind
    for kind in ModuleKind
    for home in _HOMES
    # Releases differ in whether the file of the class is part of its name.
    for name in (kind.value, f"{kind.value}.{kind.value}", f"{kind.value.lower()}.{kind.value}")
}
"""Dotted class name in modules.json -> kind, over all releases of sentence-transformers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One entry; `folder` is relative to the checkpoint, empty for its root."""

    kind: ModuleKind
    folder: str


def read_module_list(file: Path) -> tuple[Module, ...] | None:
    """Read modules.json, None when there is none.

    Returns:
        Transformer, Pooling, any number of Dense, at most one Normalize: the only order that is
        compiled.

    Raises:
        UsageError: a module of another type, in another order, or outside of the checkpoint.
        RunFailedError: the file can't be read.
    """
    if not is_present(file):
        return None
    modules = tuple(_read_module(entry) for entry in read_objects(file))
    _refuse_other_orders(file, modules)
    return modules


def _read_module(entry: JsonObject) -> Module:
    name = entry.text("type")
    if name is None:
        entry.refuse("type", "the class name of a module")
    if name not in _KINDS:
        supported = ", ".join(kind.value for kind in ModuleKind)
        raise UsageError(
            f"{entry.where('type')}: expected one of {supported} of sentence-transformers, "
            f"found {shown(name)}, which this release does not compile"
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


def _refuse_other_orders(file: Path, modules: tuple[Module, ...]) -> None:
    kinds = [module.kind for module in modules]
    middle = kinds[2:-1] if kinds[-1:] == [ModuleKind.NORMALIZE] else kinds[2:]
    is_known = kinds[:2] == [ModuleKind.TRANSFORMER, ModuleKind.POOLING]
    if not is_known or any(kind is not ModuleKind.DENSE for kind in middle):
        found = ", ".join(kind.value for kind in kinds) or "nothing"
        raise UsageError(
            f"{file}: expected Transformer, Pooling, then any Dense, then at most one Normalize; "
            f"found {found}"
        )
