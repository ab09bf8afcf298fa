"""OCI image layouts: what image-spec 1.1 asks of them, and the way there and back."""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.registry.oci_export import export_oci
from infinity_v3.artifacts.registry.oci_import import import_oci
from infinity_v3.artifacts.registry.registry import Registry
from registries import NAME, fake, new_key, new_registry, push, resolve

Json = dict[str, Any]

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
EMPTY_DIGEST = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
# RFC 6838, section 4.2, as image-spec's descriptor rules ask.
MEDIA_TYPE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return new_registry(tmp_path / "registry")


@pytest.fixture
def layout(registry: Registry, tmp_path: Path) -> Path:
    """The layout of a version signed by two keys."""
    artifact = fake(tmp_path, "1.0")
    (artifact.path / "build.json").write_bytes(b'{"labels":{}}\n')
    push(registry, tmp_path, "1.0", signer=new_key()[0])
    registry.sign(resolve(registry, f"{NAME}==1.0"), new_key()[0])
    out = tmp_path / "layout"
    export_oci(registry.storage, resolve(registry, NAME), out)
    return out


def load(path: Path) -> Json:
    document = json.loads(path.read_bytes())
    assert isinstance(document, dict)
    return document


def blob(layout: Path, descriptor: Json) -> Path:
    """The blob of a descriptor, which meets every rule of image-spec's descriptor.md."""
    known = {"mediaType", "digest", "size", "annotations", "artifactType"}
    assert {"mediaType", "digest", "size"} <= descriptor.keys() <= known
    assert MEDIA_TYPE.fullmatch(descriptor["mediaType"])
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", descriptor["digest"])
    path = layout / "blobs" / descriptor["digest"].replace(":", "/")
    data = path.read_bytes()
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert type(descriptor["size"]) is int
    assert descriptor["size"] == len(data)
    check_annotations(descriptor)
    return path


def check_annotations(document: Json) -> None:
    for key, value in document.get("annotations", {}).items():
        assert key
        assert isinstance(value, str)


def manifests(layout: Path) -> Iterator[tuple[Json, Json]]:
    """Descriptors of the index with their manifests, which meet image-spec's manifest.md."""
    index = load(layout / "index.json")
    assert index["schemaVersion"] == 2
    assert index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    for descriptor in index["manifests"]:
        assert descriptor["mediaType"] == MANIFEST_TYPE
        manifest = load(blob(layout, descriptor))
        known = {"schemaVersion", "mediaType", "artifactType", "config", "layers"}
        assert known <= manifest.keys() <= known | {"annotations", "subject"}
        assert manifest["schemaVersion"] == 2
        assert manifest["mediaType"] == MANIFEST_TYPE
        assert MEDIA_TYPE.fullmatch(manifest["artifactType"])
        assert descriptor["artifactType"] == manifest["artifactType"]
        blob(layout, manifest["config"])
        assert manifest["layers"]
        for layer in manifest["layers"]:
            blob(layout, layer)
        if "subject" in manifest:
            assert manifest["subject"]["mediaType"] == MANIFEST_TYPE
            blob(layout, manifest["subject"])
        check_annotations(manifest)
        yield descriptor, manifest


def test_a_layout_keeps_the_rules_of_oci(layout: Path, tmp_path: Path) -> None:
    assert (layout / "oci-layout").read_bytes() == b'{"imageLayoutVersion":"1.0.0"}\n'
    (listed, image), *signatures = manifests(layout)
    artifact = fake(tmp_path, "1.0")
    assert image["config"]["digest"] == artifact.artifact_id
    assert image["annotations"] == {
        "org.opencontainers.image.title": NAME,
        "org.opencontainers.image.version": "1.0",
    }
    assert listed["annotations"] == {"org.opencontainers.image.ref.name": "1.0"}
    titles = [layer["annotations"]["org.opencontainers.image.title"] for layer in image["layers"]]
    assert titles == [*(entry.path for entry in artifact.manifest.files), "build.json"]
    assert len(signatures) == 2
    for _, signature in signatures:
        assert signature["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
        assert signature["config"]["digest"] == EMPTY_DIGEST
        assert signature["subject"]["digest"] == listed["digest"]


def test_nothing_lies_in_a_layout_but_what_it_names(layout: Path) -> None:
    named = {"oci-layout", "index.json"}
    for descriptor, manifest in manifests(layout):
        for found in (descriptor, manifest["config"], *manifest["layers"]):
            named.add(str(blob(layout, found).relative_to(layout)))
    files = {str(path.relative_to(layout)) for path in layout.rglob("*") if path.is_file()}
    assert files == named


def test_it_comes_back_as_it_was(registry: Registry, layout: Path, tmp_path: Path) -> None:
    found = import_oci(layout, tmp_path / "back")
    artifact = fake(tmp_path, "1.0")
    assert found.artifact.artifact_id == artifact.artifact_id
    assert found.version == "1.0"
    assert found.signatures == dict(registry.signatures(NAME, "1.0"))
    assert len(found.signatures) == 2
    for path in (path for path in artifact.path.rglob("*") if path.is_file()):
        assert (tmp_path / "back" / path.relative_to(artifact.path)).read_bytes() == (
            path.read_bytes()
        )


def test_the_same_version_is_the_same_layout(
    registry: Registry, layout: Path, tmp_path: Path
) -> None:
    export_oci(registry.storage, resolve(registry, NAME), tmp_path / "again")
    assert (tmp_path / "again/index.json").read_bytes() == (layout / "index.json").read_bytes()


def test_every_changed_file_is_refused(layout: Path, tmp_path: Path) -> None:
    paths = sorted(path for path in layout.rglob("*") if path.is_file())
    assert len(paths) > 8
    for path in paths:
        data = path.read_bytes()
        for other in (data[:-1] + b"?", data + b"?", None):
            path.unlink() if other is None else path.write_bytes(other)
            with pytest.raises(RefusedError):
                import_oci(layout, tmp_path / "back")
            assert not (tmp_path / "back").exists()
            path.write_bytes(data)
    assert import_oci(layout, tmp_path / "back").version == "1.0"


def test_a_layer_too_many_or_too_few_is_refused(layout: Path, tmp_path: Path) -> None:
    """Every digest fits, and yet it is no artifact."""
    index = load(layout / "index.json")
    image = load(blob(layout, index["manifests"][0]))
    first = image["layers"][0]
    extra = {**first, "annotations": {"org.opencontainers.image.title": "../escape"}}
    for layers, message in (
        ([*image["layers"], extra], r"found one for '\.\./escape'"),
        (image["layers"][1:], "found none for "),
        ([*image["layers"], first], "a title of their own"),
    ):
        data = json.dumps({**image, "layers": layers}).encode()
        digest = hashlib.sha256(data).hexdigest()
        (layout / "blobs/sha256" / digest).write_bytes(data)
        listed = {"mediaType": MANIFEST_TYPE, "digest": f"sha256:{digest}", "size": len(data)}
        (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [listed]}))
        with pytest.raises(RefusedError, match=message):
            import_oci(layout, tmp_path / "back")
        assert not (tmp_path / "back").exists()


def test_a_damaged_registry_leaves_no_layout(registry: Registry, tmp_path: Path) -> None:
    artifact = fake(tmp_path, "1.0")
    push(registry, tmp_path, "1.0")
    path = f"blobs/sha256/{artifact.manifest.files[-1].sha256}"
    registry.storage.replace(path, b"another")
    with pytest.raises(RefusedError, match="found another content"):
        export_oci(registry.storage, resolve(registry, NAME), tmp_path / "out")
    registry.storage.delete(path)
    with pytest.raises(RefusedError, match="found none"):
        export_oci(registry.storage, resolve(registry, NAME), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == []


def test_an_existing_directory_is_kept(registry: Registry, layout: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="already exists"):
        export_oci(registry.storage, resolve(registry, NAME), layout)
    assert import_oci(layout, tmp_path / "back").version == "1.0"


@pytest.mark.parametrize(
    ("program", "arguments"),
    [("skopeo", ["inspect", "--raw"]), ("oras", ["manifest", "fetch", "--oci-layout"])],
)
def test_other_tools_read_it(layout: Path, program: str, arguments: list[str]) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    place = f"oci:{layout}:1.0" if program == "skopeo" else f"{layout}:1.0"
    ended = subprocess.run([program, *arguments, place], capture_output=True, check=True)
    assert json.loads(ended.stdout) == next(manifests(layout))[1]
