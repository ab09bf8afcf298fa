"""A channel moves when its gates pass, and nothing changes when they do not."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from compiled import infinity_compile
from fake_artifact import make_target
from gate_registry import ACTOR, NAME, make_registry, push_fake
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.ed25519 import read_signer, read_verifier
from infinity_v3.artifacts.registry.event_signature import is_event_trusted
from infinity_v3.artifacts.registry.moves import ChannelMove
from infinity_v3.artifacts.registry.records import Event, EventKind
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler.gates.promote import PromoteOrder, promote
from infinity_v3.compiler.gates.table import PromotionReport
from infinity_v3.compiler.progress import SilentProgress
from registries import new_key

TARGET = "cpu-x86_64-avx2-f32"
GOOD = {TARGET: {"pooled_mean.max_abs": 1e-6, "pooled_mean.min_cosine": 0.99999}}
BAD = {TARGET: {"pooled_mean.max_abs": 1e-4, "pooled_mean.min_cosine": 0.9}}
POLICY = "[channels.prod]\nmin-cosine = 0.999\n[channels.staging]\n"
Json = Any


@dataclass(frozen=True, kw_only=True)
class Place:
    """A registry with a good version 1.0 and a version 2.0 of worse parity."""

    registry: Registry
    folder: Path

    @property
    def location(self) -> str:
        return self.registry.location

    def push(self, version: str, *, worse: bool = False) -> Artifact:
        targets = (make_target(TARGET),)
        figures = BAD if worse else GOOD
        return push_fake(self.registry, self.folder, version, figures=figures, targets=targets)

    def promote(self, version: str, channel: str = "prod", **changes: object) -> PromotionReport:
        order = PromoteOrder(
            source=Reference(name=NAME, version=version),
            channel=channel,
            actor=ACTOR,
            signer=None,
            key_files=(),
            cache=self.folder / "cache",
            is_dry_run=False,
            is_ungated=False,
        )
        changed = replace(order, **changes)  # type: ignore[arg-type]  # fields by name
        return promote(self.registry, changed, SilentProgress())

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return infinity_compile(
            *("registry", "promote", NAME, "--registry", self.location, "--to", "prod"),
            *arguments,
        )

    def event(self, channel: str = "prod") -> Event | None:
        return self.registry.channel(NAME, channel).event

    def set_policy(self, text: str) -> None:
        self.registry.storage.replace(paths.POLICY, text.encode())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    registry = make_registry(tmp_path / "registry", POLICY)
    place = Place(registry=registry, folder=tmp_path / "artifacts")
    place.push("1.0")
    place.push("2.0", worse=True)
    return place


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file of a registry."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(".lock")
    }


def test_what_passes_is_promoted_and_the_log_holds_the_figures(place: Place) -> None:
    report = place.promote("1.0")
    event = place.event()
    assert event is not None
    assert report.event == event.seq == 3
    assert (event.kind, event.version, event.actor) == (EventKind.PROMOTE, "1.0", ACTOR)
    assert event.figures == report.figures
    assert [(figure.gate, figure.candidate) for figure in event.figures] == [
        ("parity", "passed"),
        ("min-cosine", "0.99999000"),
    ]
    assert not event.is_ungated
    # The policy in force is kept as it was.
    assert event.policy == hashlib.sha256(POLICY.encode()).hexdigest()
    assert place.registry.document(event.policy) == POLICY.encode()


def test_a_failed_gate_changes_nothing_and_ends_with_4(place: Place) -> None:
    place.promote("1.0")
    before = snapshot(Path(place.location))
    result = place.run("--version", "2.0")
    assert result.returncode == 4
    headline = f"{NAME} 2.0 to prod: refused, failed: min-cosine"
    assert result.stderr == f"error: {headline}; nothing was changed\n"
    lines = result.stdout.splitlines()
    assert lines[0] == headline
    assert lines[-1].split() == [
        *("min-cosine", TARGET, "0.99999000", "0.90000000", ">=", "0.999", "failed")
    ]
    assert snapshot(Path(place.location)) == before


def test_a_dry_run_shows_the_table_and_changes_nothing(place: Place) -> None:
    before = snapshot(Path(place.location))
    good, bad = (
        place.run("--version", "1.0", "--dry-run"),
        place.run("--version", "2.0", "--dry-run"),
    )
    assert (good.returncode, bad.returncode) == (0, 4)
    assert good.stdout.startswith(f"{NAME} 1.0 to prod: would be promoted\n")
    assert bad.stdout.startswith(f"{NAME} 2.0 to prod: refused, failed: min-cosine\n")
    assert snapshot(Path(place.location)) == before


def test_json_and_markdown(place: Place) -> None:
    result = place.run("--version", "2.0", "--json")
    document: Json = json.loads(result.stdout)
    assert result.returncode == 4
    assert (document["passed"], document["failed"]) == (False, ["min-cosine"])
    assert (document["event"], document["current"]) == (None, None)
    assert document["candidate"]["version"] == "2.0"
    result = place.run("--version", "1.0", "--markdown")
    assert result.returncode == 0
    assert result.stdout.startswith(f"**\u2705 {NAME} 1.0 to prod: promoted, event 3**\n")
    assert result.stderr == ""
    result = place.run("--version", "1.0", "--markdown", "--json")
    assert (result.returncode, result.stdout) == (2, "")


def test_what_is_there_already_is_left_alone(place: Place) -> None:
    place.promote("1.0")
    before = snapshot(Path(place.location))
    report = place.promote("1.0")
    assert report.event is None
    assert not report.failed
    assert snapshot(Path(place.location)) == before


def test_promoting_again_brings_back_the_file_of_a_channel(place: Place) -> None:
    place.promote("1.0")
    place.push("3.0")
    path = paths.channel(NAME, "prod")
    before = place.registry.storage.read(path)
    place.registry.storage.delete(path)
    place.promote("1.0", is_dry_run=True)
    assert place.registry.storage.read(path) is None
    assert place.promote("1.0").event is None
    assert place.registry.storage.read(path) == before is not None


def test_what_was_promoted_without_a_key_is_signed_by_promoting_it_again(
    place: Place,
) -> None:
    signers, trusted = zip(*(new_key() for _ in range(2)), strict=True)
    place.promote("1.0")
    for signer, verifier in zip(signers, trusted, strict=True):
        report = place.promote("1.0", signer=signer)
        event = place.event()
        assert event is not None
        assert report.event == event.seq
        assert event.actor == signer.key_id
        assert event.figures == report.figures != ()
        assert is_event_trusted(event, verifier)
        assert place.promote("1.0", signer=signer).event is None
    assert place.promote("1.0").event is None
    place.push("3.0")
    before = snapshot(Path(place.location))
    with pytest.raises(RefusedError, match=r"its last move is signed by .*; give --sign-key"):
        place.promote("3.0")
    assert snapshot(Path(place.location)) == before
    assert place.promote("3.0", is_dry_run=True).failed == ()


def test_a_channel_without_a_section_needs_no_gates_which_the_log_records(place: Place) -> None:
    with pytest.raises(RefusedError, match=r"expected a section \[channels\.canary\]"):
        place.promote("2.0", "canary")
    assert place.event("canary") is None
    report = place.promote("2.0", "canary", is_ungated=True)
    event = place.event("canary")
    assert event is not None
    assert event.is_ungated
    assert event.figures == report.figures == ()


def test_a_registry_without_a_policy_promotes_without_gates_only(place: Place) -> None:
    place.registry.storage.delete(paths.POLICY)
    with pytest.raises(RefusedError, match="found sections for: none"):
        place.promote("1.0")
    place.promote("1.0", is_ungated=True)
    event = place.event()
    assert event is not None
    assert (event.is_ungated, event.policy) == (True, None)


def test_a_malformed_policy_is_refused(place: Place) -> None:
    place.set_policy("[channels.prod]\nmin-cosin = 1\n")
    result = place.run("--version", "1.0")
    assert (result.returncode, result.stdout) == (3, "")
    assert "policy.toml: channels.prod.min-cosin: unknown key; did you mean min-cosine?" in (
        result.stderr
    )


def test_candidates_are_named_by_channel_version_or_id(place: Place) -> None:
    place.promote("1.0", "staging")
    assert place.run("--from", "staging").returncode == 0
    event = place.event()
    assert event is not None
    assert event.version == "1.0"
    place.set_policy("[channels.prod]\n")
    identity = place.registry.version_record(NAME, "2.0").id
    assert place.run("--id", identity).returncode == 0
    event = place.event()
    assert event is not None
    assert (event.version, event.replaced_version) == ("2.0", "1.0")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "expected one of --from CHANNEL, --version V and --id ID, found 0"),
        (("--version", "1", "--from", "a"), 2, "and --id ID, found 2"),
        (("--version", "a/b"), 2, "--version: expected a name"),
        (("--id", "sha256:12"), 2, "found 'sha256:12' behind the @"),
        (("--version", "1.1"), 3, "no such version"),
        (("--from", "staging"), 3, "staging"),
    ],
)
def test_wrong_candidates(place: Place, arguments: tuple[str, ...], code: int, said: str) -> None:
    result = place.run(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_channel_that_moves_while_gates_run_is_not_overwritten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.push("3.0")
    storage = place.registry.storage
    read = storage.read
    rival = Registry(storage)
    other = rival.resolve(Reference(name=NAME, version="3.0"))

    def read_and_lose_the_race(path: str) -> bytes | None:
        if path == paths.POLICY and place.event() is None:
            rival.move_channel(
                ChannelMove(
                    name=NAME,
                    channel="prod",
                    version=other.version,
                    id=other.id,
                    kind=EventKind.PROMOTE,
                    actor="unverified:rival",
                )
            )
        return read(path)

    monkeypatch.setattr(storage, "read", read_and_lose_the_race)
    with pytest.raises(RefusedError, match="another move came while the gates ran"):
        place.promote("1.0")
    event = place.event()
    assert event is not None
    assert (event.version, event.actor) == ("3.0", "unverified:rival")


def test_speed_and_golden_gates_do_not_run_what_failed_before(place: Place) -> None:
    place.set_policy(
        f"{POLICY}[channels.fast]\nmin-cosine = 0.999\nmax-p50-slowdown = 1.1\n"
        "min-throughput-ratio = 0.9\ngolden-requests = 'golden/{name}.jsonl'\n"
    )
    report = place.promote("2.0", "fast")
    assert [(figure.gate, figure.detail) for figure in report.figures[2:]] == [
        (gate, "not run: a gate above failed")
        for gate in ("min-golden-agreement", "max-p50-slowdown", "min-throughput-ratio")
    ]
    assert report.failed == ("min-cosine",)
    # With nothing to compare with, speed passes; golden requests that are absent do not.
    report = place.promote("1.0", "fast")
    golden, *speed = report.figures[2:]
    assert golden.subject == "golden/fake-encoder.jsonl"
    assert golden.detail.startswith("there is no such file; `infinity-compile registry record-go")
    assert report.failed == ("min-golden-agreement",)
    assert [figure.detail for figure in speed] == ["not run: a gate above failed"] * 2
    place.set_policy("[channels.fast]\nmax-p50-slowdown = 1.1\n")
    report = place.promote("1.0", "fast")
    assert report.event is not None
    assert report.figures[-1].passed
    assert report.figures[-1].detail == "nothing to compare with: the channel is empty"
    # An engine that cannot be loaded is not known to be fast.
    place.push("1.1")
    report = place.promote("1.1", "fast")
    assert report.failed == ("max-p50-slowdown",)
    assert report.figures[-1].detail.startswith("could not be measured: ")


def test_golden_requests_may_lie_on_this_host_and_need_a_server_that_starts(
    place: Place, tmp_path: Path
) -> None:
    golden = tmp_path / "golden.jsonl"
    place.set_policy(f"[channels.prod]\ngolden-requests = '{golden}'\n")
    golden.write_text('{"path": "/embed"}\n')
    (_, found) = place.promote("1.0").figures
    assert found.detail == f"{golden}: line 1: body: missing key"
    golden.write_text('{"path": "/embed", "body": {"inputs": "a"}, "response": [[1.0]]}\n')
    report = place.promote("1.0")
    assert report.failed == ("min-golden-agreement",)
    # The engine of a fake artifact is a few bytes of text.
    assert "did not start" in report.figures[-1].detail
    assert report.golden == hashlib.sha256(golden.read_bytes()).hexdigest()
    golden.unlink()
    assert place.promote("1.0").figures[-1].detail.startswith("there is no such file; ")


@dataclass(frozen=True, kw_only=True)
class KeyFiles:
    private: Path
    public: Path


def make_keys(folder: Path, name: str) -> KeyFiles:
    keys = KeyFiles(private=folder / f"{name}.pem", public=folder / f"{name}.pub.pem")
    for command in (
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(keys.private)],
        ["openssl", "pkey", "-in", str(keys.private), "-pubout", "-out", str(keys.public)],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return keys


def test_signatures_are_asked_of_version_and_promotion(place: Place, tmp_path: Path) -> None:
    ours, stranger = make_keys(tmp_path, "ours"), make_keys(tmp_path, "stranger")
    place.set_policy("[channels.prod]\nrequire-signature = 'keys/release.pem'\n")
    result = place.run("--version", "1.0")
    assert result.returncode == 3
    assert "require-signature: expected the public key keys/release.pem, found no" in result.stderr
    place.registry.storage.create("keys/release.pem", ours.public.read_bytes())
    key_id = read_signer(ours.private).key_id
    for arguments, failing in (
        ((), ["unsigned", f"unverified:{_user(place)}"]),
        (("--sign-key", str(stranger.private)), ["unsigned", read_signer(stranger.private).key_id]),
        (("--sign-key", str(ours.private)), ["unsigned"]),
    ):
        result = place.run("--version", "1.0", "--json", *arguments)
        document: Json = json.loads(result.stdout)
        assert result.returncode == 4
        assert document["failed"] == ["require-signature"]
        assert [
            gate["candidate"] for gate in document["gates"] if gate["verdict"] == "failed"
        ] == failing
    assert place.event() is None
    place.registry.sign(
        place.registry.resolve(Reference(name=NAME, version="1.0")), read_signer(ours.private)
    )
    result = place.run("--version", "1.0", "--sign-key", str(ours.private))
    assert result.returncode == 0, result.stderr
    event = place.event()
    assert event is not None
    assert event.actor == key_id
    assert event.signature is not None
    # A server that trusts the key accepts the move.
    trusting = Registry(place.registry.storage, verifier=read_verifier([ours.public]))
    trusting.check_trust(trusting.resolve(Reference(name=NAME, channel="prod")))


def test_trusted_keys_may_come_from_the_command_line(place: Place, tmp_path: Path) -> None:
    ours = make_keys(tmp_path, "ours")
    signer = read_signer(ours.private)
    place.set_policy("[channels.prod]\nrequire-signature = true\n")
    with pytest.raises(UsageError) as raised:
        place.promote("1.0", signer=signer)
    assert str(raised.value) == (
        "policy.toml: channels.prod.require-signature: expected public keys to check signatures "
        "with, found none; name their files there, or give --key PUBLIC.pem"
    )
    place.registry.sign(place.registry.resolve(Reference(name=NAME, version="1.0")), signer)
    report = place.promote("1.0", signer=signer, key_files=(ours.public,))
    assert report.event is not None


def _user(place: Place) -> str:
    document: Json = json.loads(
        place.run("--version", "1.0", "--no-gates", "--dry-run", "--json").stdout
    )
    actor: str = document["actor"]
    return actor.removeprefix("unverified:")


def test_nothing_heavy_is_loaded() -> None:
    """The command runs where serving runs, without the compile extra."""
    code = (
        "import sys, infinity_v3.compiler.cli, infinity_v3.compiler.gates.side_by_side;"
        "heavy = {'torch', 'transformers', 'safetensors', 'huggingface_hub', 'cryptography'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
