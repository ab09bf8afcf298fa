"""Artifacts of an earlier format, here one made up, carried over into the current one."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fake_artifact import write_fake_artifact
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.typed_json import JsonObject
from infinity_v3.compiler.programs.upgrade import upgrade_artifact
from infinity_v3.compiler.progress import SilentProgress

OLD_FOLDER = "tokenizer"
STEP_SCRIPT = """
from infinity_v3.compiler.programs import upgrade
def step(document, stage):
    document["kind"] = document.pop("task")
    document["format_version"] = 1
    return document
upgrade.upgrade_artifact.__defaults__ = ({0: step},)
from infinity_v3.compiler.cli import main
main()
"""


def step(document: JsonObject, stage: Path) -> JsonObject:
    """From the made-up format 0, which said `task` for `kind`."""
    assert (stage / OLD_FOLDER / "tokenizer.json").exists()
    document["kind"] = document.pop("task")
    document["format_version"] = 1
    return document


@pytest.fixture
def old(tmp_path: Path) -> Path:
    root = write_fake_artifact(tmp_path / "old")
    (root / "build.json").write_text('{"labels": {"team": "search"}}')
    rewrite(root, lambda document: document | {"task": document.pop("kind"), "format_version": 0})
    return root


def rewrite(root: Path, change: object) -> None:
    path = root / "artifact.json"
    document = json.loads(path.read_bytes())
    assert callable(change)
    path.write_text(json.dumps(change(document)))


def upgraded(old: Path, new: Path) -> str:
    return upgrade_artifact(old, new, SilentProgress(), {0: step}).artifact_id


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_an_old_artifact_is_written_anew(old: Path, tmp_path: Path) -> None:
    before = contents(old)
    identity = upgraded(old, tmp_path / "new")
    assert contents(old) == before
    new = open_artifact(tmp_path / "new")
    assert new.artifact_id == identity
    assert new.manifest.kind.value == "embedding"
    expected = write_fake_artifact(tmp_path / "expected")
    assert identity == open_artifact(expected).artifact_id
    build = json.loads((tmp_path / "new" / "build.json").read_bytes())
    assert build == {"labels": {"team": "search"}}


def test_the_reader_names_the_command(old: Path) -> None:
    with pytest.raises(RefusedError, match="or `infinity-compile upgrade OLD NEW`, or compile"):
        open_artifact(old)


def test_the_command_upgrades(old: Path, tmp_path: Path) -> None:
    arguments = ["upgrade", str(old), str(tmp_path / "new"), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", STEP_SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == open_artifact(tmp_path / "new").artifact_id


def test_the_current_format_is_nothing_to_do(tmp_path: Path) -> None:
    root = write_fake_artifact(tmp_path / "current")
    with pytest.raises(UsageError, match="has format 1, the current one; nothing to do"):
        upgraded(root, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_newer_format_names_the_release(old: Path, tmp_path: Path) -> None:
    rewrite(old, lambda document: document | {"format_version": 7})
    with pytest.raises(
        RefusedError, match=r"found 7, .* use infinity_v3 '3\.0\.0', which wrote it"
    ):
        upgraded(old, tmp_path / "new")


def test_a_format_that_no_step_leads_from_is_refused(old: Path, tmp_path: Path) -> None:
    with pytest.raises(
        RefusedError, match="no step leads from format 0 to 1 in this release"
    ) as caught:
        upgrade_artifact(old, tmp_path / "new", SilentProgress())
    assert str(caught.value).startswith(f"{old}: ")


def test_a_damaged_artifact_is_refused(old: Path, tmp_path: Path) -> None:
    (old / "tokenizer" / "tokenizer.json").write_bytes(b'{"model":[]}')
    with pytest.raises(RefusedError, match=r"tokenizer/tokenizer\.json: expected sha256") as caught:
        upgraded(old, tmp_path / "new")
    assert str(caught.value).startswith(f"{old}: tokenizer/")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]


def test_a_result_that_breaks_the_format_is_refused(old: Path, tmp_path: Path) -> None:
    rewrite(old, lambda document: document | {"task": "poetry"})
    with pytest.raises(RefusedError, match="kind: expected one of embedding") as caught:
        upgraded(old, tmp_path / "new")
    assert str(caught.value).startswith(f"{old}: artifact.json: kind: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "format: expected 'infinity-artifact', found null"),
        ('{"format": "infinity-artifact"}', "format_version: expected an integer, found null"),
        ('{"format": "infinity-artifact", "format_version": true}', "an integer, found true"),
        ("[", "expected JSON"),
    ],
)
def test_other_documents_are_refused(old: Path, tmp_path: Path, text: str, message: str) -> None:
    (old / "artifact.json").write_text(text)
    with pytest.raises(RefusedError, match=message) as caught:
        upgraded(old, tmp_path / "new")
    assert str(caught.value).startswith(f"{old}: artifact.json: ")


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"expected an artifact directory with artifact\.json"):
        upgraded(tmp_path, tmp_path / "new")


def test_an_existing_output_is_refused(old: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        upgraded(old, tmp_path / "new")
