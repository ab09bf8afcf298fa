"""Every package folder is listed in the build, and nothing else is."""

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("artifacts", "compiler", "model_specs", "runtime", "server")


def _setuptools_table() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    setuptools: dict[str, Any] = table["tool"]["setuptools"]
    return setuptools


def _package_folders() -> set[str]:
    return {
        ".".join(("infinity_v3", *marker.parent.relative_to(ROOT).parts))
        for folder in FOLDERS
        for marker in (ROOT / folder).rglob("__init__.py")
    }


def test_every_package_folder_is_listed_and_exists() -> None:
    assert set(_setuptools_table()["packages"]) == _package_folders()


def test_every_folder_with_modules_is_a_package() -> None:
    modules = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    bare = {str(path.relative_to(ROOT)) for path in modules if not _is_in_package(path)}
    assert not bare, f"these modules would be missing from the wheel: {sorted(bare)}"


def _is_in_package(path: Path) -> bool:
    return (path.parent / "__init__.py").exists()


def test_the_five_folders_are_mapped_into_the_namespace() -> None:
    expected = {f"infinity_v3.{folder}": folder for folder in FOLDERS}
    assert _setuptools_table()["package-dir"] == expected


def test_the_namespace_root_has_no_package_marker() -> None:
    assert not (ROOT / "infinity_v3" / "__init__.py").exists()
    assert not (ROOT / "__init__.py").exists()


def test_every_folder_is_marked_as_typed() -> None:
    untyped = [folder for folder in FOLDERS if not (ROOT / folder / "py.typed").exists()]
    assert not untyped
