"""Version and changelog agree, links lead somewhere, and the README names commands that exist."""

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?://|mailto:)(?P<target>[^)#\s]+)?(?:#(?P<anchor>[^)\s]+))?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def test_newest_changelog_entry_is_the_version_in_pyproject() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == version


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    text = FENCE.sub("", document.read_text())
    broken = [link[0] for link in LINK.finditer(text) if not _exists(document, link)]
    assert not broken


def _exists(document: Path, link: re.Match[str]) -> bool:
    target = document.parent / link["target"] if link["target"] else document
    if not target.exists():
        return False
    return link["anchor"] is None or link["anchor"] in _anchors(target.read_text())


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_readme_opens_with_the_two_make_targets_that_the_makefile_has() -> None:
    commands = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert commands[:2] == ["demo", "test"]
    assert set(commands) <= set(targets)


def test_every_document_of_docs_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    missing = [
        path.name for path in (ROOT / "docs").glob("*.md") if f"docs/{path.name}" not in readme
    ]
    assert not missing


def test_every_page_of_operations_is_linked_from_its_first() -> None:
    folder = ROOT / "docs" / "operations"
    first = (folder / "README.md").read_text()
    missing = [path.name for path in folder.glob("*.md") if f"({path.name})" not in first]
    assert missing == ["README.md"]
