"""Imports that would make a second copy of a module, or that belong in another file."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("artifacts", "compiler", "model_specs", "runtime", "server")
ALLOWED_FILES = {
    "transformers": {
        "compiler/model_config.py",
        "compiler/reference.py",
        *(f"compiler/families/{path.name}" for path in (ROOT / "compiler/families").glob("*.py")),
    },
    "torch._inductor": {"compiler/backends/aoti.py"},
}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _all_imports(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in _imports(path):
                yield str(path.relative_to(ROOT)), name


def test_nobody_imports_a_folder_by_its_bare_name() -> None:
    bare = [
        f"{path}: {name}"
        for path, name in _all_imports(*FOLDERS, "tests")
        if name.split(".")[0] in FOLDERS
    ]
    assert not bare


def test_heavy_libraries_are_imported_in_their_own_files_only() -> None:
    stray = [
        f"{path}: {name}"
        for path, name in _all_imports(*FOLDERS)
        for library, allowed in ALLOWED_FILES.items()
        if f"{name}.".startswith(f"{library}.") and path not in allowed
    ]
    assert not stray


def test_engine_libraries_stay_out_of_the_rest_of_the_runtime() -> None:
    stray = [
        f"{path}: {name}"
        for path, name in _all_imports("runtime")
        if name.split(".")[0] in {"torch", "tensorrt", "onnxruntime"}
        and not path.startswith("runtime/engines/")
    ]
    assert not stray


def test_no_folder_pickles() -> None:
    pickled = [
        f"{path}: {name}"
        for path, name in _all_imports(*FOLDERS)
        if name.split(".")[0] in {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    ]
    assert not pickled
