"""Builds the container images, or with --dry-run says what they would be made of.

    python build.py serve --dry-run
    python build.py compile --tool podman
    python build.py baked --artifact DIR --tag registry.example/minilm:1

The dry run reads the Containerfile alone: it needs neither a daemon nor a network.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from containerfile import Containerfile, Stage, Step, expand, read_containerfile

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KINDS = ("serve", "compile", "baked")
TOOLS = ("docker", "podman")
_DONT_COUNT = "__pycache__"


def main() -> int:
    options = _options()
    if options.kind == "baked" and options.artifact is None:
        return _refuse("baked: expected --artifact DIR, the folder that infinity-compile made")
    if options.artifact is not None and not (options.artifact / "artifact.json").is_file():
        return _refuse(f"--artifact {options.artifact}: expected a folder with artifact.json")
    path = HERE / f"Containerfile.{options.kind}"
    context = options.artifact if options.kind == "baked" else ROOT
    command = _command(options, path, context)
    if not options.dry_run:
        if shutil.which(command[0]) is None:
            return _refuse(f"{command[0]} is not on PATH; --dry-run works without it")
        return subprocess.run(command, check=False).returncode
    plan = _plan(read_containerfile(path), context, options.arg)
    _say(json.dumps(plan, indent=2) if options.json else _shown(plan, path, command))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build a container image of Infinity V3.")
    parser.add_argument("kind", choices=KINDS, help="which Containerfile")
    parser.add_argument("--artifact", type=Path, help="with baked: the artifact to put in")
    parser.add_argument("--tag", help="name of the image; default infinity-v3:KIND")
    parser.add_argument("--tool", choices=TOOLS, default="docker")
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help="an ARG of the file"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the layers and stop")
    parser.add_argument("--json", action="store_true", help="with --dry-run: the list as JSON")
    return parser.parse_args()


def _command(options: argparse.Namespace, path: Path, context: Path) -> list[str]:
    command = [options.tool, "build", "--file", str(path)]
    ignore = path.with_name(f"{path.name}.dockerignore")
    if options.tool == "podman" and ignore.exists():
        command += ["--ignorefile", str(ignore)]
    if options.tool == "podman":
        # Its own image format has no health check.
        command += ["--format", "docker"]
    given = {pair.partition("=")[0] for pair in options.arg}
    facts = {} if options.kind == "baked" else {"VERSION": _version(), "REVISION": _revision()}
    pairs = [f"{name}={value}" for name, value in facts.items() if name not in given]
    for pair in [*pairs, *options.arg]:
        command += ["--build-arg", pair]
    return [*command, "--tag", options.tag or f"infinity-v3:{options.kind}", str(context)]


def _version() -> str:
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return found[1] if found else "unknown"


def _revision() -> str:
    if shutil.which("git") is None:
        return "unknown"
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _plan(file: Containerfile, context: Path, given: Sequence[str]) -> list[dict[str, object]]:
    """Every step of every stage, with what it is for and what is known of its size."""
    pairs = (pair.partition("=") for pair in given)
    overrides = {name: value for name, _, value in pairs}
    rows: list[dict[str, object]] = []
    for stage in file.stages:
        values = {**file.arguments(stage), **overrides}
        rows.append(
            _row(stage, "FROM", expand(stage.base, values), "", "base", stage is file.image)
        )
        for step, purpose in _with_purposes(stage):
            kind = "layer" if step.makes_layer else "setting"
            text, size = expand(step.text, values), _size_facts(step, values, context)
            rows.append(_row(stage, step.keyword, text, purpose, kind, stage is file.image, size))
    return rows


def _with_purposes(stage: Stage) -> Iterator[tuple[Step, str]]:
    """Steps of a kind that follow each other share the comment above the first."""
    keyword, purpose = "", ""
    for step in stage.steps:
        purpose = step.purpose or (purpose if step.keyword == keyword == "COPY" else "")
        keyword = step.keyword
        yield step, purpose


def _row(  # noqa: PLR0913  # the columns of the list
    stage: Stage, keyword: str, text: str, purpose: str, kind: str, is_kept: bool, size: str = ""
) -> dict[str, object]:
    return {
        "stage": stage.name or "image",
        "kept": is_kept,
        "kind": kind,
        "instruction": keyword,
        "text": text,
        "purpose": purpose,
        "size": size,
    }


def _size_facts(step: Step, values: Mapping[str, str], context: Path) -> str:
    if step.keyword == "COPY" and "from" in step.flags:
        return f"what stage {step.flags['from']} left there, and nothing else of it"
    if step.keyword == "COPY":
        *sources, _ = step.words()
        files = [path for name in sources for path in _files(context / expand(name, values))]
        return f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.2f} MB"
    if step.keyword == "RUN":
        return "; ".join(_run_facts(step.text))
    return ""


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [one for one in path.rglob("*") if one.is_file() and _DONT_COUNT not in one.parts]


def _run_facts(text: str) -> Iterator[str]:
    if 'pip" install' in text:
        yield "no download cache" if "--no-cache-dir" in text else "keeps pip's cache"
    if "apt-get install" in text:
        yield "no recommended packages" if "--no-install-recommends" in text else "recommended, too"
        yield "no package lists" if "rm -rf /var/lib/apt/lists" in text else "keeps package lists"
    if "-delete" in text or "uninstall" in text:
        yield "removes from the folder that the image copies"


def _shown(plan: Sequence[dict[str, object]], path: Path, command: Sequence[str]) -> str:
    lines = [str(path.relative_to(ROOT)), f"$ {' '.join(command)}"]
    stage, purpose = None, None
    for row in plan:
        if row["stage"] != stage:
            stage = row["stage"]
            lines += ["", f"stage {stage}: {'the image' if row['kept'] else 'thrown away'}"]
        size = f"  [{row['size']}]" if row["size"] else ""
        lines.append(f"  {row['kind']!s:8}{row['instruction']!s:12}{_cut(str(row['text']))}{size}")
        if row["purpose"] != purpose:
            purpose = row["purpose"]
            lines += [f"{'':22}{purpose}"] if purpose else []
    layers = [row for row in plan if row["kept"] and row["kind"] == "layer"]
    return "\n".join([*lines, "", f"{len(layers)} layers on top of the base image"])


def _cut(text: str, width: int = 96) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _refuse(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
