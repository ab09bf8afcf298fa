"""`infinity-compile registry` as a program: what it prints, and how it ends."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fake_artifact import make_target, write_fake_artifact
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.marker import create_registry
from infinity_v3.artifacts.registry.open_registry import open_registry
from infinity_v3.artifacts.store import open_artifact
from registries import ACTOR, NAME, POLICY, promote

PROGRAM = Path(sys.executable).with_name("infinity-compile")
HEAVY = ("torch", "transformers", "safetensors", "huggingface_hub", "numpy", "fsspec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    error: str

    @property
    def document(self) -> dict[str, object]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


class Shell:
    """Runs commands with a registry, a cache and a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = folder / "registry"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("INFINITY_")}
        self.environ = {
            **kept,
            "INFINITY_REGISTRY": str(self.registry),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_DATA_HOME": str(folder / "data"),
        }

    def run(self, *arguments: str | Path, **environ: str) -> Ended:
        """Run `infinity-compile`."""
        result = subprocess.run(
            [PROGRAM, *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**self.environ, **environ},
            timeout=120,
            check=False,
        )
        assert "Traceback" not in result.stderr, result.stderr
        return Ended(code=result.returncode, out=result.stdout, error=result.stderr)

    def registry_(self, *arguments: str | Path) -> Ended:
        """Run `infinity-compile registry`, which must succeed."""
        ended = self.run("registry", *arguments)
        assert ended.code == 0, ended.error
        return ended

    def refuse(self, code: int, *arguments: str | Path) -> str:
        """Run `infinity-compile registry`, which must fail so; its one sentence."""
        ended = self.run("registry", *arguments)
        assert (ended.code, ended.out) == (code, ""), ended
        *_, last = ended.error.splitlines()
        assert last.startswith("error: ")
        return last.removeprefix("error: ")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """An empty registry, and the artifacts `one` and `two` in the current directory."""
    shell = Shell(tmp_path)
    write_fake_artifact(tmp_path / "one")
    write_fake_artifact(tmp_path / "two", {"targets": (make_target(),)})
    (tmp_path / "two" / "build.json").write_text(
        '{"labels":{"team":"search"},"parity":{"cpu-x86_64-avx2-f32":{"min_cosine":0.99991}}}'
    )
    create_registry(LocalStorage(shell.registry), POLICY)
    return shell


@pytest.fixture
def filled(shell: Shell) -> Shell:
    """Versions 1 and 2; prod pointed to 1 and points to 2."""
    registry = open_registry(str(shell.registry))
    for version, folder in (("1", "one"), ("2", "two")):
        registry.push(open_artifact(shell.folder / folder), version, actor=ACTOR)
        promote(registry, version)
    return shell


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    make = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(private)]
    show = ["openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public)]
    for command in (make, show):
        subprocess.run(command, capture_output=True, timeout=60, check=True)
    return private, public


def ids(shell: Shell) -> dict[str, str]:
    registry = open_registry(str(shell.registry))
    return {version: record.id for version, record in registry.versions(NAME).items()}


def test_a_registry_is_made_once(shell: Shell) -> None:
    shell.registry = shell.folder / "new"
    shell.environ["INFINITY_REGISTRY"] = str(shell.registry)
    made = shell.registry_("init")
    assert made.out.splitlines()[0] == str(shell.registry)
    assert "expected a place without a registry, found one" in shell.refuse(2, "init")
    assert "[channels.prod]" in (shell.registry / "policy.toml").read_text()
    ended = shell.registry_("list")
    assert ended.out == f"{shell.registry}: empty\n"


def test_what_is_pushed_is_listed_shown_and_pulled(filled: Shell) -> None:
    identity = ids(filled)["2"]
    listed = filled.registry_("list").out.splitlines()
    assert [line.split()[:4] for line in listed] == [
        ["name", "versions", "newest", "channels"],
        [NAME, "2", "2", "prod=2"],
    ]
    shown = filled.registry_("show", NAME).out.splitlines()
    assert [line.split()[0] for line in shown] == ["version", "2", "1"]
    assert shown[1].split()[1] == identity[7:19]
    details = filled.registry_("show", f"{NAME}:prod", "--json").document
    assert (details["id"], details["version"]) == (identity, "2")
    assert "team=search" in filled.registry_("show", f"{NAME}==2").out

    pulled = filled.run("registry", "pull", NAME, "--out", "pulled")
    assert pulled.out.splitlines() == [
        str(filled.folder / "pulled"),
        f"  {NAME}==2",
        f"  {identity}",
    ]
    assert "pull fake-encoder==2" in pulled.error
    assert (filled.folder / "pulled/build.json").read_bytes() == (
        filled.folder / "two/build.json"
    ).read_bytes()
    assert "pulled: already exists" in filled.refuse(2, "pull", NAME, "--out", "pulled")


def test_the_log_is_shown_newest_first(filled: Shell) -> None:
    lines = filled.registry_("log", NAME).out.splitlines()
    assert [line.split()[0] for line in lines] == ["event", "4", "3", "2", "1"]
    events = filled.registry_("log", NAME, "--limit", "1", "--json").document["events"]
    assert isinstance(events, list)
    assert [(event["seq"], event["channel"], event["replaced_version"]) for event in events] == [
        (4, "prod", "1")
    ]
    assert "did you mean fake-encoder?" in filled.refuse(3, "log", "fake-encode")


def test_versions_never_change(filled: Shell) -> None:
    again = filled.registry_("push", "one", "--version", "1")
    assert again.out.endswith("this version was there already; nothing changed\n")
    sentence = filled.refuse(3, "push", "two", "--version", "1")
    assert sentence == (
        f"{NAME}==1: this version is {ids(filled)['1']}, not {ids(filled)['2']}; a version never "
        "changes: choose another one"
    )


def test_a_push_of_a_known_version_says_what_it_did(filled: Shell, keys: tuple[Path, Path]) -> None:
    lost = filled.registry / paths.version(NAME, "1")
    lost.unlink()
    mended = filled.registry_("push", "one", "--version", "1")
    assert mended.out.endswith("was there already; 1 lost or damaged file mended\n")
    assert lost.exists()
    signed = filled.registry_("push", "one", "--version", "1", "--sign-key", keys[0])
    assert signed.out.endswith("was there already; a signature added\n")
    again = filled.registry_("push", "one", "--version", "1", "--sign-key", keys[0])
    assert again.out.endswith("was there already; nothing changed\n")


def test_differences_are_told_key_by_key(filled: Shell) -> None:
    found = filled.registry_("diff", f"{NAME}==1", "two", "--json").document
    assert found["differences"] == [
        {"what": "targets.cpu-x86_64-avx2-f32.weights", "before": "float32", "after": "-"},
        {
            "what": "targets.cpu-x86_64-avx2-f32.measured.min_cosine",
            "before": "-",
            "after": "0.99991",
        },
        {"what": "targets.cpu-x86_64-avx512-bf16", "before": "there", "after": "-"},
    ]
    files = found["files"]
    assert isinstance(files, list)
    assert [(entry["path"], entry["before_bytes"], entry["after_bytes"]) for entry in files] == [
        ("targets/cpu-x86_64-avx512-bf16/libinfinity-kernels-0123456789ab.so", 33, None),
        ("targets/cpu-x86_64-avx512-bf16/model.so", 32, None),
        ("weights/float32.safetensors", 14, None),
    ]
    assert filled.registry_("diff", "one", f"{NAME}==1").out.endswith("no difference\n")


def test_a_channel_goes_back_and_again(filled: Shell) -> None:
    back = filled.registry_("rollback", NAME, "--channel", "prod")
    assert back.out.splitlines()[:2] == [f"{NAME}:prod", "  1, was 2"]
    sentence = filled.refuse(3, "rollback", NAME, "--channel", "prod")
    assert "found nothing that is still there" in sentence
    forth = filled.registry_(
        "rollback", NAME, "--channel", "prod", "--to", ids(filled)["2"][7:19], "--json"
    )
    event = forth.document["event"]
    assert isinstance(event, dict)
    assert (event["kind"], event["version"]) == ("rollback", "2")
    for wrong in ("abc", "0" * 12):
        sentence = filled.refuse(3, "rollback", NAME, "--channel", "prod", "--to", wrong)
        assert sentence.startswith(f"--to {wrong}: expected 12 or more digits of an id that")
    assert "no such channel; channels: prod" in filled.refuse(
        3, "rollback", NAME, "--channel", "pord"
    )


def test_versions_are_retired_and_freed(filled: Shell) -> None:
    assert "no channel points to, found prod" in filled.refuse(3, "retire", f"{NAME}==2")
    filled.registry_("retire", f"{NAME}==1")
    assert filled.registry_("gc").out.splitlines()[-1].startswith("0 files removed (0 B), ")
    dry = filled.registry_("gc", "--grace", "0s", "--dry-run", "--json").document
    assert isinstance(dry["removed"], list)
    assert len(dry["removed"]) == 4
    assert (
        filled.registry_("gc", "--grace", "0s").out.splitlines()[-1].startswith("4 files removed")
    )
    assert filled.registry_("fsck").out.endswith(": whole\n")
    assert "retired on" in filled.refuse(3, "pull", f"{NAME}==1", "--out", "gone")


def test_signatures_from_the_key_to_the_pull(filled: Shell, keys: tuple[Path, Path]) -> None:
    private, public = keys
    assert "expected a signature by" in filled.refuse(
        3, "pull", f"{NAME}==2", "--out", "out", "--key", public
    )
    filled.registry_("sign", f"{NAME}==2", "--key", private)
    filled.registry_("verify", f"{NAME}==2", "--key", public)
    # The channel's last move is not signed.
    assert "found no signature" in filled.refuse(3, "verify", f"{NAME}:prod", "--key", public)
    filled.registry_("pull", f"{NAME}==2", "--out", "out", "--key", public)
    filled.registry_("verify", "out", "--key", public)
    assert "expected signatures in" in filled.refuse(3, "verify", "one", "--key", public)
    assert "expected --version V" in filled.refuse(2, "sign", "one", "--key", private)
    filled.registry_("sign", "one", "--key", private, "--version", "1")
    verified = filled.registry_("verify", "one", "--key", public, "--json").document
    assert (verified["version"], verified["id"]) == ("1", ids(filled)["1"])
    assert "found a private key" in filled.refuse(2, "verify", "one", "--key", private)


def test_a_signed_channel_is_moved_with_a_key_only(filled: Shell, keys: tuple[Path, Path]) -> None:
    private, public = keys
    filled.registry_("push", "one", "--version", "3", "--sign-key", private)
    filled.registry_("sign", f"{NAME}==1", "--key", private)
    filled.registry_("rollback", NAME, "--channel", "prod", "--sign-key", private)
    filled.registry_("verify", f"{NAME}:prod", "--key", public)
    sentence = filled.refuse(3, "rollback", NAME, "--channel", "prod", "--to", ids(filled)["2"])
    assert "its last move is signed by" in sentence


def test_damage_is_printed_and_ends_with_3(filled: Shell) -> None:
    path = filled.registry / paths.channel(NAME, "prod")
    path.write_text(path.read_text().replace('"event":4', '"event":2'))
    ended = filled.run("registry", "fsck", "--json")
    assert ended.code == 3
    assert ended.document["is_whole"] is False
    assert ended.document["damage"] == [
        {
            "path": paths.channel(NAME, "prod"),
            "problem": "contradicts event 2 of the log; the channel was changed behind it; if the "
            "log is right, remove this file and promote again what the log says",
        }
    ]
    assert f"damaged: {paths.channel(NAME, 'prod')}: contradicts event 2" in ended.error
    assert "contradicts event 2" in filled.refuse(3, "pull", NAME, "--out", "out")


def test_a_damaged_channel_is_named_and_the_rest_is_listed(filled: Shell) -> None:
    path = filled.registry / paths.channel(NAME, "prod")
    path.write_text("{")
    (filled.registry / "names/readme").write_text("?")
    ended = filled.run("registry", "list", "--json")
    assert ended.code == 3
    assert ended.document["damaged"] == [f"{NAME}:prod"]
    rows = ended.document["names"]
    assert isinstance(rows, list)
    (row,) = rows
    assert (row["name"], len(row["versions"]), row["channels"]) == (NAME, 2, {})
    assert f"error: damaged: {NAME}:prod: {path}: " in ended.error
    remedy = "remove this file and promote again what the log says"
    assert remedy in ended.error
    for command in (("show", NAME), ("rollback", NAME, "--channel", "prod")):
        assert remedy in filled.refuse(3, *command)
    path.unlink()
    assert filled.registry_("list").out.splitlines()[1].split()[3] == "prod=2"
    filled.registry_("gc")
    assert "names/readme: expected the folder of a name" in filled.run("registry", "fsck").out


def test_where_the_registry_is_found(filled: Shell) -> None:
    """Flag before environment before TOML before the user's own."""
    toml = filled.folder / "infinity.toml"
    toml.write_text(f'registry = "{filled.registry}"\n[compile]\nname = "x"\n')
    del filled.environ["INFINITY_REGISTRY"]
    nothing: dict[str, str] = {}
    own = filled.folder / "data/infinity_v3/registry"
    assert f"{own}: expected a registry" in filled.run("registry", "list", **nothing).error
    assert filled.run("registry", "list", "--config", "infinity.toml", **nothing).code == 0
    by_variable = filled.run("registry", "list", INFINITY_COMPILE_CONFIG="infinity.toml", **nothing)
    assert NAME in by_variable.out
    elsewhere = filled.run("registry", "list", "--config", "infinity.toml", INFINITY_REGISTRY="/no")
    assert "/no: expected a registry" in elsewhere.error
    by_flag = filled.run("registry", "list", "--registry", "registry", INFINITY_REGISTRY="/no")
    assert NAME in by_flag.out
    toml.write_text('registry = ""\n')
    empty = "expected the path or URL of a registry, found an empty text"
    for ended, where in (
        (filled.run("registry", "list", "--registry", ""), "--registry"),
        (filled.run("registry", "list", INFINITY_REGISTRY=""), "INFINITY_REGISTRY"),
        (filled.run("registry", "list", "--config", "infinity.toml"), "infinity.toml: registry"),
    ):
        assert (ended.code, f"error: {where}: {empty}" in ended.error) == (2, True)
    toml.write_text("registry = 3\n")
    wrong = filled.run("registry", "list", "--config", "infinity.toml", **nothing)
    assert (wrong.code, "registry: expected a string" in wrong.error) == (2, True)


def test_commands_on_artifacts_take_references(filled: Shell) -> None:
    identity = ids(filled)["1"]
    ended = filled.run("inspect", f"{NAME}==1", "--json")
    assert ended.code == 0, ended.error
    assert ended.document["id"] == identity
    assert ended.document["path"] == str(filled.folder / "cache/infinity_v3/pulled" / identity[7:])
    by_path = filled.run("inspect", "one", "--json")
    assert by_path.document["id"] == identity
    for command in ("inspect", "verify", "tune"):
        missing = filled.run(command, "nothing-here")
        assert missing.code == 2
        assert "nothing-here: no such artifact; give the directory of one, or a" in missing.error
        unknown = filled.run(command, f"{NAME}:pord")
        assert unknown.code == 3
        assert "no such channel; channels: prod" in unknown.error


def test_a_damaged_artifact_in_the_registry_is_not_inspected(filled: Shell) -> None:
    shutil.rmtree(filled.registry / paths.BLOBS)
    ended = filled.run("inspect", NAME)
    assert ended.code == 3
    assert "found none" in ended.error
    assert list((filled.folder / "cache/infinity_v3/pulled").glob("[0-9a-f]*")) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("push", "missing", "--version", "1"), "missing: no such artifact"),
        (("push", "one"), "missing option '--version'"),
        (("push", "one", "--version", "../1"), "expected a version's name"),
        (("pull", "a b", "--out", "x"), "a name is 1 to 100 of"),
        (("pull", f"{NAME}@sha256:12", "--out", "x"), "behind the @"),
        (("gc", "--grace", "soon"), "expected a duration such as 90s"),
        (("retire", NAME), "expected name==version"),
        (("frob",), "no such command: frob; commands: "),
        ((), "expected a command: "),
        (("list", "--registry", "nowhere://x"), "nowhere"),
        (("init", "--registry", "memory://x"), "a place that outlives the command, found its mem"),
        (("verify", NAME, "--key", "missing.pem"), "missing.pem: no such key file"),
        (("push", "one", "--version", "1", "--sign-key", "no.pem"), "no.pem: no such key file"),
    ],
)
def test_wrong_usage_ends_with_2(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    assert words in shell.refuse(2, *arguments)


@pytest.mark.parametrize("command", [("registry", "--help"), ("registry", "pull")])
def test_registries_need_no_compile_extra(filled: Shell, command: tuple[str, ...]) -> None:
    """Serving images pull: nothing heavy is loaded for it."""
    arguments = [*command, *((NAME, "--out", "lean") if command[-1] == "pull" else ())]
    script = (
        "import sys\n"
        "from infinity_v3.compiler.cli import main\n"
        f"sys.argv = ['infinity-compile', *{arguments!r}]\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=filled.folder,
        env=filled.environ,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "loaded:"
