"""`registry export-oci` and `import-oci` as programs, from one registry to another."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infinity_v3.artifacts.registry.registry import Registry
from registries import NAME, fake, new_key, new_registry, push

PROGRAM = Path(sys.executable).with_name("infinity-compile")


def run(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("INFINITY_")}
    return subprocess.run(
        [PROGRAM, "registry", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**kept, "XDG_CACHE_HOME": str(folder / "cache")},
        timeout=120,
        check=False,
    )


def document(folder: Path, *arguments: str | Path) -> dict[str, object]:
    ended = run(folder, *arguments, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def there(tmp_path: Path) -> Registry:
    """Where a layout goes."""
    return new_registry(tmp_path / "there")


@pytest.fixture
def key_id(tmp_path: Path) -> str:
    """A registry `here` with version 1.0, signed by the key of this id."""
    signer, _ = new_key()
    push(new_registry(tmp_path / "here"), tmp_path, "1.0", signer=signer)
    return signer.key_id


def test_a_version_travels_with_its_signature(tmp_path: Path, there: Registry, key_id: str) -> None:
    identity = fake(tmp_path, "1.0").artifact_id
    exported = document(tmp_path, "export-oci", NAME, "layout", "--registry", "here")
    assert (exported["version"], exported["id"]) == ("1.0", identity)
    imported = document(tmp_path, "import-oci", "layout", "--registry", "there")
    assert imported == {
        "registry": str(tmp_path / "there"),
        "name": NAME,
        "version": "1.0",
        "id": identity,
        "is_new": True,
        "signatures": [key_id],
        "dropped_signatures": [],
    }
    here = Registry(type(there.storage)(tmp_path / "here"))
    assert there.signatures(NAME, "1.0") == here.signatures(NAME, "1.0")
    again = run(tmp_path, "import-oci", "layout", "--registry", "there")
    assert again.stdout == f"{NAME}==1.0\n  {identity}\n  signed by {key_id}\n"


def test_a_signature_of_another_version_stays_behind(
    tmp_path: Path, there: Registry, key_id: str
) -> None:
    document(tmp_path, "export-oci", f"{NAME}==1.0", "layout", "--registry", "here")
    imported = document(tmp_path, "import-oci", "layout", "--version", "2.0", "--registry", "there")
    assert (imported["version"], imported["dropped_signatures"]) == ("2.0", [key_id])
    assert list(there.versions(NAME)) == ["2.0"]
    assert there.signatures(NAME, "2.0") == {}


@pytest.mark.usefixtures("there", "key_id")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("import-oci", "absent"), 2, "absent: no such directory; give an OCI image layout"),
        (("import-oci", "."), 3, "expected this file of an OCI image layout"),
        (("export-oci", "unknown", "layout"), 3, "unknown: no such name"),
        (("export-oci", NAME, "here"), 2, "already exists"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    ended = run(tmp_path, *arguments, "--registry", "here")
    assert (ended.returncode, ended.stdout) == (code, "")
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
