"""Installs the published clients, starts the servers, runs every client, writes the report.

A client that cannot be installed or fails does not end the run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from client_kit import SERVERS  # noqa: E402  (the path above makes it importable)
from client_report import Outcome, as_json, not_run, read_outcome, render  # noqa: E402
from client_servers import RunningServers  # noqa: E402
from client_table import CLIENTS, PROJECT_GROUPS, Client  # noqa: E402
from compiled import CompiledArtifacts, compile_checkpoint, minilm_checkpoint  # noqa: E402
from infinity_v3.artifacts.host import detect_host  # noqa: E402

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = ROOT / ".venv-clients"
PAGE = ROOT / "docs" / "reports" / "clients.md"
QUIET_CLIENTS = {
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
"""No client asks anybody but its server."""
CLIENT_TIMEOUT_S = 3600


class NotInstalledError(Exception):
    """An environment could not be made; the message is pip's."""


def main() -> int:
    """Run the kit; 1 when a client failed."""
    arguments = _arguments()
    clients = [one for one in CLIENTS if not arguments.only or one.name in arguments.only]
    with tempfile.TemporaryDirectory(prefix="infinity-clients-") as scratch:
        outcomes = list(run_clients(clients, Path(scratch), arguments.artifacts))
    origin = _origin()
    page = render(outcomes, clients, origin)
    sys.stdout.write(as_json(outcomes, origin) + "\n" if arguments.json else page)
    if not arguments.only:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page)
    return 0 if all(outcome.has_passed for outcome in outcomes) else 1


def run_clients(
    clients: Sequence[Client], scratch: Path, artifacts: Path | None
) -> Iterator[Outcome]:
    """Run each client against the servers, one after the other.

    Args:
        clients: which.
        scratch: an empty folder.
        artifacts: where compiled artifacts are kept; None = made anew, in the scratch folder.
    """
    compiled = CompiledArtifacts(artifacts or scratch / "artifacts")
    with RunningServers(_minilm(compiled), compiled) as servers:
        urls = {name: servers(name) for name in SERVERS}
        for client in clients:
            outcome = _outcome(client, urls, scratch / f"{client.name}.xml")
            result = "passes" if outcome.has_passed else "FAILS"
            _say(f"{client.name}: {result}, {outcome.seconds} s")
            yield outcome


def _outcome(client: Client, urls: Mapping[str, str], junit: Path) -> Outcome:
    try:
        folder = environment(client.group)
    except NotInstalledError as error:
        return not_run(client, str(error))
    told = _run_tests(client, folder, urls, junit)
    if not junit.exists():
        return not_run(client, told)
    return read_outcome(client, _versions(client, folder), junit)


def environment(group: str) -> Path:
    """Give the environment of a group, making it when its requirements have changed.

    Raises:
        NotInstalledError: pip could not.
    """
    folder, requirements = ENVIRONMENTS / group, HERE / f"requirements-{group}.txt"
    stamp = folder / "requirements.txt"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return folder
    _say(f"Installing {requirements.name}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    if group in PROJECT_GROUPS:
        _add_project(folder)
    command: Sequence[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "-r",
        requirements,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalledError(" ".join(lines) or result.stderr[-1000:])
    stamp.write_text(requirements.read_text())
    return folder


def _add_project(folder: Path) -> None:
    """Let an environment see the packages of this one, behind its own; pip installs them not again.

    torch is one of them: what pip would choose brings gigabytes that a CPU has no use for.
    """
    (own,) = folder.glob("lib/python*/site-packages")
    seen = [path for path in sys.path if Path(path).name == "site-packages"]
    (own / "project.pth").write_text("".join(f"{path}\n" for path in seen))


def _run_tests(client: Client, folder: Path, urls: Mapping[str, str], junit: Path) -> str:
    """Run a client's tests and give the end of what they printed."""
    # Not its program: pip makes none where pytest is the project's.
    command: Sequence[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pytest",
        "-c",
        HERE / "client.ini",
        f"--confcutdir={HERE}",
        f"--junitxml={junit}",
        "-p",
        "no:cacheprovider",
        HERE / f"test_{client.name}.py",
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INFINITY_")}
    told = {"INFINITY_CLIENT_SERVERS": json.dumps(urls), "INFINITY_CLIENT_LONG": "1"}
    result = subprocess.run(
        command,
        cwd=junit.parent,  # which Python puts on the path: not the root, whose folders are packages
        env={**kept, **QUIET_CLIENTS, **told},
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        check=False,
    )
    if result.returncode != 0:
        _say(f"{result.stdout}\n{result.stderr}")
    return result.stdout[-1000:]


def _versions(client: Client, folder: Path) -> Mapping[str, str]:
    code = "import importlib.metadata, sys\nfor name in sys.argv[1:]:"
    code += " print(importlib.metadata.version(name))"
    command: Sequence[str | Path] = [folder / "bin" / "python", "-c", code, *client.packages]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(zip(client.packages, result.stdout.split(), strict=True))


def _minilm(compiled: CompiledArtifacts) -> Path:
    given = os.environ.get("INFINITY_TEST_MINILM_ARTIFACT")
    if given:
        return Path(given)
    return compiled("minilm", lambda path: compile_checkpoint(minilm_checkpoint(), path))


def _origin() -> str:
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = " with changes" if _git("status", "--porcelain", "--", ":!docs/reports") else ""
    host = f"{detect_host().cpu_model}, {os.cpu_count()} CPUs"
    version = ".".join(map(str, sys.version_info[:3]))
    return f"Commit {commit}{changed}, {time.strftime('%Y-%m-%d')}, {host}, Python {version}."


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def _say(text: str) -> None:
    # Standard output belongs to the report.
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    names = [client.name for client in CLIENTS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="this client; repeatable")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the page")
    parser.add_argument("--artifacts", type=Path, help="keep compiled artifacts in this folder")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
