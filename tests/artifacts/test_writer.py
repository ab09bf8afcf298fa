"""An artifact is published whole or not at all, whatever ends the writer."""

import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import fake_artifact
from fake_artifact import make_manifest, write_fake_files
from infinity_v3.artifacts import publish
from infinity_v3.artifacts.errors import RefusedError, RunFailedError, UsageError
from infinity_v3.artifacts.profile import Profile, TargetProfile, profile_to_json, read_profile
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.tree import describe_files
from infinity_v3.artifacts.writer import ArtifactWriter

BUILD = {"labels": {"team": "search"}, "warnings": []}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An output path alone in its directory."""
    directory = tmp_path / "outputs"
    directory.mkdir()
    return directory / "minilm"


def publish_fake(
    out: Path,
    *,
    before_commit: Callable[[Path], object] | None = None,
    profile: Mapping[str, object] | None = None,
    build: Mapping[str, object] = BUILD,
) -> str:
    """Publish a fake artifact; `before_commit` is given the stage."""
    manifest = make_manifest()
    with ArtifactWriter(out) as writer:
        write_fake_files(writer.stage, manifest)
        if before_commit is not None:
            before_commit(writer.stage)
        return writer.commit(manifest, profile=profile or {}, build=build).artifact_id


def left_beside(out: Path) -> list[str]:
    return sorted(path.name for path in out.parent.iterdir())


def test_committed_artifact_opens(out: Path) -> None:
    identity = publish_fake(out)
    artifact = open_artifact(out)

    assert artifact.artifact_id == identity
    assert artifact.manifest == make_manifest()
    assert json.loads((out / "build.json").read_bytes()) == BUILD
    assert read_profile(out) == Profile()
    assert left_beside(out) == ["minilm"]


def test_same_inputs_give_the_same_id(out: Path) -> None:
    assert publish_fake(out) == publish_fake(out.with_name("again"))


def test_committed_artifact_is_complete_in_the_result(out: Path) -> None:
    manifest = make_manifest()
    with ArtifactWriter(out) as writer:
        write_fake_files(writer.stage, manifest)
        artifact = writer.commit(manifest, profile={}, build={})

    assert artifact == open_artifact(out)


def test_stage_opens_after_a_provisional_manifest(out: Path) -> None:
    manifest = make_manifest()
    with ArtifactWriter(out) as writer:
        write_fake_files(writer.stage, manifest)
        provisional = writer.write_manifest(replace(manifest, name="provisional"))
        assert open_artifact(writer.stage).artifact_id == provisional
        final = writer.commit(manifest, profile={}, build={}).artifact_id

    assert final != provisional
    assert open_artifact(out).artifact_id == final


def test_stage_is_on_the_file_system_of_the_output(out: Path) -> None:
    with ArtifactWriter(out) as writer:
        assert writer.stage.parent == out.parent
        assert writer.stage.name.endswith(".partial")
        assert not out.exists()


def test_stage_outside_the_context_is_a_bug(out: Path) -> None:
    with pytest.raises(RuntimeError, match="this is a bug"):
        _ = ArtifactWriter(out).stage


def test_profile_is_written(out: Path) -> None:
    profile = Profile(targets={"cpu-x86_64-avx2-f32": TargetProfile(fill_tokens=4096)})
    manifest = make_manifest()
    with ArtifactWriter(out) as writer:
        write_fake_files(writer.stage, manifest)
        writer.commit(manifest, profile=profile_to_json(profile), build={})

    assert read_profile(out) == profile


def test_permissive_umask_does_not_make_the_artifact_shared(out: Path) -> None:
    before = os.umask(0)
    try:
        publish_fake(out)
    finally:
        os.umask(before)

    assert open_artifact(out).manifest.name == "fake-encoder"


def _make_file(path: Path) -> None:
    path.write_bytes(b"")


def _make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [Path.mkdir, _make_file, _make_dangling_link])
def test_existing_output_is_refused_and_kept(out: Path, make: Callable[[Path], None]) -> None:
    make(out)
    with pytest.raises(UsageError, match="minilm: already exists") as caught, ArtifactWriter(out):
        pass

    assert caught.value.exit_code == 2
    assert left_beside(out) == ["minilm"]


@pytest.mark.parametrize("path", ["/", "..", "."])
def test_path_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(UsageError), ArtifactWriter(Path(path)):
        pass


@pytest.mark.parametrize("has_exclusive_rename", [True, False])
@pytest.mark.parametrize("make", [Path.mkdir, _make_file])
def test_output_that_appears_meanwhile_is_not_overwritten(
    out: Path,
    make: Callable[[Path], None],
    has_exclusive_rename: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not has_exclusive_rename:
        monkeypatch.setattr(publish, "rename_noreplace", lambda source, output: errno.EINVAL)
    with pytest.raises(UsageError, match="already exists"):
        publish_fake(out, before_commit=lambda _: make(out))

    assert left_beside(out) == ["minilm"]
    assert not (out / "artifact.json").exists()


def test_file_system_without_exclusive_rename_is_served(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "rename_noreplace", lambda source, output: errno.EINVAL)

    assert publish_fake(out) == open_artifact(out).artifact_id


class StopError(Exception):
    """Ends a body."""


@pytest.mark.parametrize("kind", [StopError, KeyboardInterrupt, SystemExit])
def test_error_in_the_body_leaves_nothing(out: Path, kind: type[BaseException]) -> None:
    def stop(stage: Path) -> None:
        raise kind

    with pytest.raises(kind):
        publish_fake(out, before_commit=stop)

    assert left_beside(out) == []


def test_leaving_without_commit_leaves_nothing(out: Path) -> None:
    with ArtifactWriter(out) as writer:
        writer.write_manifest(make_manifest())

    assert left_beside(out) == []


@pytest.mark.parametrize("place", ["x", "tokenizer/x", "new/folder/x"])
def test_output_in_another_artifact_is_refused(
    out: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    identity = publish_fake(out)
    monkeypatch.chdir(out)
    for output in (out / place, Path(place)):
        with pytest.raises(UsageError) as caught, ArtifactWriter(output):
            pass
        assert str(caught.value).startswith(f"{output}: lies in the artifact {out}, which ")
    assert open_artifact(out).artifact_id == identity
    assert left_beside(out) == ["minilm"]


def test_missing_parents_are_made_and_removed_on_failure(out: Path) -> None:
    deep = out / "a" / "b"
    with pytest.raises(StopError), ArtifactWriter(deep):
        raise StopError
    assert left_beside(out) == []

    publish_fake(deep)
    assert open_artifact(deep).manifest.name == "fake-encoder"


def _add_file(stage: Path) -> None:
    (stage / "targets" / "extra.so").write_bytes(b"")


def _remove_file(stage: Path) -> None:
    (stage / "tokenizer" / "tokenizer.json").unlink()


def _change_file(stage: Path) -> None:
    (stage / "tokenizer" / "tokenizer.json").write_bytes(b'{"model":[]}')


def _link_file(stage: Path) -> None:
    (stage / "tokenizer" / "tokenizer.json").unlink()
    (stage / "tokenizer" / "tokenizer.json").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_add_file, "targets/extra.so: not listed in artifact.json"),
        (_remove_file, "tokenizer/tokenizer.json: listed in artifact.json, but absent"),
        (_change_file, "tokenizer/tokenizer.json: expected sha256"),
        (_link_file, "tokenizer/tokenizer.json: expected regular files"),
    ],
)
def test_stage_that_differs_from_its_manifest_is_not_published(
    out: Path, spoil: Callable[[Path], None], message: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        publish_fake(out, before_commit=spoil)

    assert message in str(caught.value)
    assert left_beside(out) == []


@pytest.mark.parametrize(
    ("profile", "build", "message"),
    [
        ({}, {"labels": {"bad key": "x"}}, "build.json: labels['bad key']: expected a name"),
        ({}, {"took_s": float("nan")}, "build.json: expected a value that JSON can hold"),
        ({}, {"path": Path("x")}, "build.json: expected a value that JSON can hold"),
        ({"speed": 1}, {}, "profile.json: speed: unknown key"),
    ],
)
def test_bad_document_is_not_published(
    out: Path, profile: dict[str, object], build: dict[str, object], message: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        publish_fake(out, profile=profile, build=build)

    assert message in str(caught.value)
    assert left_beside(out) == []


def test_bad_manifest_is_not_published(out: Path) -> None:
    with pytest.raises(RefusedError, match=r"artifact.json: name"), ArtifactWriter(out) as writer:
        writer.commit(make_manifest(name="a b"), profile={}, build={})

    assert left_beside(out) == []


@pytest.mark.parametrize("step", ["fsync", "readv"])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (errno.ENOSPC, "no space left on device; free some space and run again"),
        (errno.EROFS, "read-only file system; choose a path on a writable file system"),
        (errno.EIO, "input/output error"),
    ],
)
def test_failing_system_call_is_one_sentence(
    out: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, message: str
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.raises(RunFailedError) as caught:
        publish_fake(out, before_commit=lambda _: monkeypatch.setattr(os, step, fail))

    assert caught.value.exit_code == 1
    assert str(caught.value).startswith("cannot ")
    assert message in str(caught.value)
    assert left_beside(out) == []


def test_full_disk_in_the_body_is_one_sentence(out: Path) -> None:
    with pytest.raises(RunFailedError, match=r"cannot write .* no space left"), ArtifactWriter(out):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert left_beside(out) == []


def test_callers_own_failure_is_left_alone(out: Path) -> None:
    with pytest.raises(FileNotFoundError), ArtifactWriter(out):
        Path("/nonexistent/checkpoint").read_bytes()


def test_parent_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RunFailedError, match=r"cannot write .*: not a directory"):
        ArtifactWriter(tmp_path / "file" / "out").__enter__()


def test_directory_without_write_permission_is_one_sentence(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: int = 0o777) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RunFailedError, match="permission denied; check the owner and mode"):
        ArtifactWriter(out).__enter__()

    assert left_beside(out) == []


def test_second_writer_to_one_path_is_refused_by_name(out: Path) -> None:
    with ArtifactWriter(out) as first:
        write_fake_files(first.stage, make_manifest())
        with pytest.raises(UsageError, match="minilm: another process is writing to this path"):
            ArtifactWriter(out).__enter__()
        publish_fake(out.with_name("other"))
        first.commit(make_manifest(), profile={}, build={})

    assert left_beside(out) == ["minilm", "other"]
    assert open_artifact(out).manifest.name == "fake-encoder"


def test_path_is_free_again_after_a_failure(out: Path) -> None:
    with pytest.raises(StopError), ArtifactWriter(out):
        raise StopError

    publish_fake(out)


def test_leftovers_of_similar_names_are_kept(out: Path) -> None:
    kept = [".minilm.partial", ".minilm.b.0123456789abcdef.partial", ".minilm2.lock", "minilm.x"]
    for name in kept:
        (out.parent / name).mkdir()
    publish_fake(out)

    assert left_beside(out) == sorted([*kept, "minilm"])


SCRIPT = """
    import sys, time
    from pathlib import Path
    from fake_artifact import make_manifest, write_fake_files
    from infinity_v3.artifacts.writer import ArtifactWriter

    def {hook}(*arguments):
        print("waiting", flush=True)
        time.sleep(60)

    if "{hook}" != "in_body":
        import infinity_v3.artifacts.writer as module
        module.{hook} = {hook}
    with ArtifactWriter(Path(sys.argv[1])) as writer:
        write_fake_files(writer.stage, make_manifest())
        if "{hook}" == "in_body":
            in_body()
        writer.commit(make_manifest(), profile={{}}, build={{}})
"""


def start_waiting_writer(out: Path, hook: str) -> "subprocess.Popen[str]":
    """Start a writer that stops at a step until a signal comes."""
    support = str(Path(fake_artifact.__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT.format(hook=hook)), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": support},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    return process


HOOKS = ["in_body", "sync_tree", "rename_without_overwrite"]


@pytest.mark.parametrize("hook", HOOKS)
def test_ctrl_c_leaves_nothing(out: Path, hook: str) -> None:
    with start_waiting_writer(out, hook) as process:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)

    assert left_beside(out) == []


@pytest.mark.parametrize("hook", HOOKS)
def test_next_writer_clears_what_a_killed_one_left(out: Path, hook: str) -> None:
    with start_waiting_writer(out, hook) as process:
        with pytest.raises(UsageError, match="another process is writing"):
            ArtifactWriter(out).__enter__()
        process.kill()
        process.wait(timeout=20)
    assert not out.exists()
    assert any(name.endswith(".partial") for name in left_beside(out))

    publish_fake(out)

    assert left_beside(out) == ["minilm"]


def test_lock_file_removed_under_a_waiting_writer_is_not_mistaken_for_a_lock(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that opened the lock file just before its removal must lock the new one."""
    lock = out.parent / ".minilm.lock"
    real_flock = fcntl.flock
    calls: list[int] = []

    def flock(descriptor: int, operation: int) -> None:
        if not calls:
            lock.unlink()
        calls.append(descriptor)
        real_flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with ArtifactWriter(out):
        assert len(calls) == 2
        assert lock.exists()


def test_file_size_limit_is_one_sentence(out: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(RunFailedError, match="file too large; raise the file size limit"):
            publish_fake(
                out,
                before_commit=lambda _: resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard)),
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    assert left_beside(out) == []


def test_described_files_are_those_of_the_manifest(tmp_path: Path) -> None:
    manifest = make_manifest()
    write_fake_files(tmp_path, manifest)
    for name in ("artifact.json", "profile.json", "build.json"):
        (tmp_path / name).write_bytes(b"")

    assert describe_files(tmp_path) == manifest.files
