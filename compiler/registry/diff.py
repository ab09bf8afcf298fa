"""`registry diff`: what differs between two artifacts. Looks at manifests and build.json only."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import click

from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.typed_json import to_json
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.inspection import shown_bytes
from infinity_v3.compiler.registry.output import print_result, table
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options
from infinity_v3.compiler.registry.view import ArtifactView, parity_figures, view_of

SECTIONS = ("kind", "model", "heads", "prompts", "tokenizer", "graph", "source", "provenance")
"""Keys of the manifest that are compared value by value; files and targets have their own rules."""
TARGET_FACTS = ("backend", "device", "precision", "requires", "limits", "weights", "parity")
ABSENT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One line: what differs, and both values as text; "-" = not there."""

    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that only one of the two has, or that has another content; bytes None = not there."""

    path: str
    before_bytes: int | None
    after_bytes: int | None


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@registry_options
@json_option
def diff(place: RegistryPlace, before: str, after: str, is_json: bool) -> None:
    """Show what differs between A and B, each a reference or an artifact directory."""
    old, new = view_of(before, place), view_of(after, place)
    differences = list(compare(old, new))
    files = list(compare_files(old.manifest, new.manifest))
    document = {
        "before": old.id,
        "after": new.id,
        "differences": [asdict(difference) for difference in differences],
        "files": [asdict(change) for change in files],
    }
    print_result(document, _text(old, new, differences, files), is_json=is_json)


def compare(old: ArtifactView, new: ArtifactView) -> Iterator[Difference]:
    """Compare manifests key by key, targets by name and figures of parity."""
    for section in SECTIONS:
        before = _flat(to_json(getattr(old.manifest, section)), section)
        after = _flat(to_json(getattr(new.manifest, section)), section)
        yield from _differences(before, after)
    yield from _compare_targets(old, new)


def compare_files(old: Manifest, new: Manifest) -> Iterator[FileChange]:
    """Compare lists of files by path and digest."""
    before = {entry.path: entry for entry in old.files}
    after = {entry.path: entry for entry in new.files}
    for path in sorted({*before, *after}):
        left, right = before.get(path), after.get(path)
        if left is None or right is None or left.sha256 != right.sha256:
            yield FileChange(
                path=path,
                before_bytes=left.num_bytes if left else None,
                after_bytes=right.num_bytes if right else None,
            )


def _compare_targets(old: ArtifactView, new: ArtifactView) -> Iterator[Difference]:
    names = [target.name for view in (old, new) for target in view.manifest.targets]
    for name in dict.fromkeys(names):
        before, after = _target(old, name), _target(new, name)
        if not before or not after:
            yield Difference(
                what=f"targets.{name}",
                before="there" if before else ABSENT,
                after="there" if after else ABSENT,
            )
            continue
        yield from _differences(before, after)


def _target(view: ArtifactView, name: str) -> dict[str, str]:
    """A target's facts and its measured parity, flat; {} where there is no such target."""
    found = [target for target in view.manifest.targets if target.name == name]
    if not found:
        return {}
    facts = {key: to_json(getattr(found[0], key)) for key in TARGET_FACTS}
    return {
        **_flat(facts, f"targets.{name}"),
        **_flat(parity_figures(view, name), f"targets.{name}.measured"),
    }


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    for what in dict.fromkeys((*before, *after)):
        left, right = before.get(what, ABSENT), after.get(what, ABSENT)
        if left != right:
            yield Difference(what=what, before=left, after=right)


def _flat(value: object, prefix: str) -> dict[str, str]:
    """Leaves of a document by their dotted keys."""
    if isinstance(value, Mapping):
        leaves: dict[str, str] = {}
        for key, item in value.items():
            leaves.update(_flat(item, f"{prefix}.{key}"))
        return leaves
    if isinstance(value, list) and any(isinstance(item, (Mapping, list)) for item in value):
        return _flat({str(index): item for index, item in enumerate(value)}, prefix)
    return {prefix: _word(value)}


def _word(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or ABSENT
    if isinstance(value, float):
        return f"{value:.6g}"
    return ABSENT if value is None else str(value)


def _text(
    old: ArtifactView,
    new: ArtifactView,
    differences: list[Difference],
    files: list[FileChange],
) -> str:
    head = f"A  {old.label}\nB  {new.label}\n"
    if not differences and not files:
        return f"{head}no difference{'' if old.id == new.id else ' in what is compared'}\n"
    rows = [(line.what, _cut(line.before), _cut(line.after)) for line in differences]
    changes = [
        (_verb(change), change.path, _bytes(change.before_bytes), _bytes(change.after_bytes))
        for change in files
    ]
    return head + table(("what", "A", "B"), rows) + table(("file", "path", "A", "B"), changes)


def _cut(text: str) -> str:
    """Keeps the table's columns in sight; --json has the whole text."""
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 60 else f"{one_line[:57]}..."


def _verb(change: FileChange) -> str:
    if change.before_bytes is None:
        return "added"
    return "removed" if change.after_bytes is None else "changed"


def _bytes(num_bytes: int | None) -> str:
    return ABSENT if num_bytes is None else shown_bytes(num_bytes)
