"""A model from build to rollback, step by step, with real programs and a server under load.

    python tests/e2e/promotion_story.py [--folder DIR]

Compiles two versions of a tiny model, pushes them, shows a gate that fails, promotes, lets a server
follow the channel through a promotion and a rollback while clients ask, and cleans up. Ends with 1
when a claim does not hold. Needs about a minute and a half on two cores.
"""

import argparse
import contextlib
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from compiled import infinity_compile
from infinity_v3.artifacts.codec import decode_manifest, encode_manifest
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.artifacts.manifest import Prompts
from promotion_load import Load, nearest_version
from server_process import ServerProcess
from tampering import copy_artifact
from tiny_artifacts import FLOAT32_TARGET
from tiny_checkpoints import make_tiny_checkpoint

NAME = "story"
WORSE_MAX_ABS = 1e-3
POLICY = "[channels.prod]\nmax-abs = 2e-5\nmax-p50-slowdown = 2.0\n"
SWAP_TIMEOUT_S = 60.0
POLL_S = 0.05
SHOWN_LINES = 16
Json = Any


class ClaimError(Exception):
    """Something that the story says did not happen."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """Where things lie, and how what happens is told."""

    folder: Path
    started_s: float

    @property
    def registry(self) -> str:
        return str(self.folder / "registry")

    @property
    def cache(self) -> str:
        return str(self.folder / "cache")

    def say(self, text: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - self.started_s:5.1f} s] {text}\n")
        sys.stdout.flush()

    def run(self, *words: str, code: int = 0) -> str:
        """Run infinity-compile, show what it printed, and give it."""
        self.say(f"$ infinity-compile {shlex.join(words)}")
        result = infinity_compile(*words)
        for line in result.stdout.splitlines()[:SHOWN_LINES]:
            sys.stdout.write(f"          {line}\n")
        self.claim(
            result.returncode == code,
            f"it ends with {code}"
            if result.returncode == code
            else f"expected exit code {code}, found {result.returncode}: {result.stderr[-600:]}",
        )
        return result.stdout

    def on_registry(self, *words: str, code: int = 0) -> str:
        return self.run("registry", *words, "--registry", self.registry, code=code)

    def claim(self, holds: bool, text: str) -> None:
        self.say(f"  {'ok' if holds else 'FAILED'}: {text}")
        if not holds:
            raise ClaimError(text)

    def pointed_to(self) -> str:
        """The version that the channel points to."""
        path = Path(self.registry, "names", NAME, "channels", "prod.json")
        version: str = json.loads(path.read_text())["version"]
        return version


def main() -> int:
    """Tell the story; 1 when a claim does not hold."""
    parser = argparse.ArgumentParser(description="A model from build to rollback, step by step.")
    help_text = "keep everything there, and use the versions that are"
    parser.add_argument("--folder", type=Path, help=help_text)
    given: Path | None = parser.parse_args().folder
    with contextlib.ExitStack() as stack:
        folder = given or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="infinity-story-"))
        )
        story = Story(folder=folder, started_s=time.monotonic())
        try:
            tell(story)
        except ClaimError:
            return 1
        except RuntimeError as error:  # the server, with its log
            story.say(f"  FAILED: {error}")
            return 1
    story.say("every claim holds")
    return 0


def tell(story: Story) -> None:
    """The steps in order."""
    story.say("1. build two versions of one model")
    build(story, "1.0", seed=0)
    build(story, "2.0", seed=1)
    worse = worsen(story)

    story.say("2. push them, and one whose parity is worse on purpose")
    story.on_registry("init")
    Path(story.registry, "policy.toml").write_text(POLICY)
    for version in ("1.0", "2.0"):
        story.on_registry("push", str(story.folder / version), "--version", version)
    story.on_registry("push", str(worse), "--version", "2.0-worse")

    story.say("3. the first promotion, and a gate that fails")
    promote(story, "1.0")
    promote(story, "2.0-worse", code=4)
    story.claim(story.pointed_to() == "1.0", "prod still points to 1.0")

    story.say("4. a server follows the channel while clients ask")
    with serving(story) as (server, load):
        swap(story, load, lambda: promote(story, "2.0"), "2.0")
        swap(story, load, lambda: roll_back(story), "1.0")
        report = load.stop()
        story.claim(not report.errors, f"no error in {report.num_replies} replies {report.errors}")
        story.claim(not report.num_mixed, "no reply mixes two versions")
        story.say(f"  replies by version: {dict(sorted(report.by_version.items()))}")
        story.claim(server.stop() == 0, "the server ends with 0")

    story.say("5. clean up")
    story.on_registry("retire", f"{NAME}==2.0-worse")
    freed = story.on_registry("gc", "--grace", "0s")
    story.claim("1 file removed" in freed, "gc frees what the retired version alone needed")
    story.on_registry("fsck")
    story.on_registry("log", NAME)


def build(story: Story, version: str, *, seed: int) -> None:
    """Compile one version from a checkpoint of its own, unless it is there."""
    if Path(story.folder, version).exists():
        story.say(f"  {version} is in {story.folder} already")
        return
    checkpoint = story.folder / f"checkpoint-{version}"
    make_tiny_checkpoint("distilbert", checkpoint, seed=seed, max_positions=32, num_layers=1)
    story.run(
        *("model", str(checkpoint), "--out", str(story.folder / version)),
        *("--name", NAME, "--target", FLOAT32_TARGET),
    )


def worsen(story: Story) -> Path:
    """The second version with other figures, as if its parity had been so bad, and another id."""
    copy = copy_artifact(story.folder / "2.0", story.folder / "2.0-worse")
    manifest = decode_manifest((copy / MANIFEST_FILE).read_bytes())
    changed = replace(manifest, prompts=Prompts(named={"worse": "worse: "}))
    (copy / MANIFEST_FILE).write_bytes(encode_manifest(changed))
    path = copy / "build.json"
    build_json: Json = json.loads(path.read_text())
    for figures in build_json["parity"].values():
        figures["pooled.max_abs"] = WORSE_MAX_ABS
    path.write_text(json.dumps(build_json))
    return copy


def promote(story: Story, version: str, *, code: int = 0) -> None:
    story.on_registry(
        *("promote", NAME, "--version", version, "--to", "prod"),
        *("--artifact-cache", story.cache),
        code=code,
    )


def roll_back(story: Story) -> None:
    story.on_registry("rollback", NAME, "--channel", "prod")


@contextlib.contextmanager
def serving(story: Story) -> Iterator[tuple[ServerProcess, Load]]:
    """A server on name:prod, and clients that ask it all the time."""
    options = (
        *("--registry", story.registry, "--artifact-cache", story.cache),
        *("--watch-channel", "--watch-interval", "1"),
    )
    story.say(f"$ infinity_v3 --model-id {NAME}:prod {shlex.join(options)}")
    with ServerProcess(f"{NAME}:prod", *options) as server:
        load = Load(server.base_url)
        load.learn("1.0")
        load.start()
        try:
            yield server, load
        finally:
            load.stop()


def swap(story: Story, load: Load, move: Callable[[], None], version: str) -> None:
    """Move the channel and wait until the server answers as another version does."""
    before = load.latest()
    move()
    moved_s = time.monotonic()
    story.claim(story.pointed_to() == version, f"prod points to {version}")
    while nearest_version(load.ask(), {"before": before}) == "before":
        if time.monotonic() - moved_s > SWAP_TIMEOUT_S:
            story.claim(False, f"the server swaps within {SWAP_TIMEOUT_S:g} s")
        time.sleep(POLL_S)
    story.claim(
        True, f"the server swapped {time.monotonic() - moved_s:.1f} s after the command had ended"
    )
    load.learn(version)


if __name__ == "__main__":
    sys.exit(main())
