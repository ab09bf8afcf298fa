"""Proves what is in the serving image, without a container tool: runs its commands, then serves.

    python prove.py --artifact DIR

The RUN and COPY lines of Containerfile.serve's build stage are executed as they stand, with other
values for its ARGs, on a PATH that holds no compiler. The server is then started from the result
as the image starts it: its ENV, ENTRYPOINT and HEALTHCHECK and, where this user may, its user
number on a root file system that nothing can write to.
"""

import argparse
import http.client
import json
import math
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from containerfile import Containerfile, Step, expand, read_containerfile

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TOOLS = ("sh", "find", "rm")
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 45.0
READ_ONLY_ROOT = "mount --make-rprivate / && mount -o remount,bind,ro /"
TEXTS = ("A cat is sleeping on the sofa.", "A kitten naps on the couch.", "Interest rates rose.")
SYSTEM_LIBRARY = re.compile(r"^/(?:usr/)?lib.*/(?P<name>[^/]+\.so[^/]*)$")


def main() -> int:
    options = _options()
    file = read_containerfile(HERE / "Containerfile.serve")
    with tempfile.TemporaryDirectory(prefix="infinity-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        environment = _build(file, folder, dict(pair.split("=", 1) for pair in options.arg))
        _check_content(Path(environment["VENV"]), Path(environment["PATH"]))
        return _serve(file, options.artifact.resolve(), folder, environment)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prove the content of the serving image.")
    parser.add_argument("--artifact", type=Path, required=True, help="an embedding artifact")
    parser.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help="an ARG of the file"
    )
    return parser.parse_args()


def _build(file: Containerfile, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Run the build stage's steps; gives the environment that they ran in."""
    stage = file.stages[0]
    places = {"VENV": str(folder / "venv"), "SOURCE": str(folder / "source")}
    values = {**file.arguments(stage), **given, **places}
    environment = {**values, "PATH": str(_tools(folder / "bin")), "HOME": str(folder)}
    for step in stage.steps:
        if step.keyword == "RUN":
            _say(f"RUN  {step.text}")
            begun_s = time.perf_counter()
            done = subprocess.run(["sh", "-c", step.text], env=environment, check=False)
            if done.returncode != 0:
                raise SystemExit(f"the command above ended with {done.returncode}")
            _say(
                f"     {time.perf_counter() - begun_s:.0f} s, {_megabytes(folder / 'venv')} so far"
            )
        elif step.keyword == "COPY":
            _copy(step, values)
    return environment


def _tools(folder: Path) -> Path:
    """A folder with what the commands may use: Python, three tools, no compiler."""
    folder.mkdir()
    base = (
        Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(str(base))} "$@"\n')
    python.chmod(0o755)
    for tool in TOOLS:
        found = shutil.which(tool)
        if found is None:
            raise SystemExit(f"{tool} is not on PATH")
        (folder / tool).symlink_to(found)
    return folder


def _copy(step: Step, values: Mapping[str, str]) -> None:
    *sources, target = (expand(word, values) for word in step.words())
    _say(f"COPY {' '.join(sources)} {target}")
    for source in (ROOT / name for name in sources):
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, ignore=ignore)
        else:
            Path(target).mkdir(exist_ok=True)
            shutil.copy(source, target)


def _check_content(venv: Path, tools: Path) -> None:
    (packages,) = venv.glob("lib/python3.*/site-packages")
    names = sorted(path.name.partition("-")[0] for path in packages.glob("*.dist-info"))
    unwanted = {"transformers", "safetensors", "huggingface_hub", "sympy", "pip"} & {*names}
    compilers = [tool for tool in ("g++", "gcc", "cc", "clang") if (tools / tool).exists()]
    _say(f"\nin the image: {', '.join(names)}")
    if unwanted or compilers:
        raise SystemExit(f"the image must not hold {sorted(unwanted)} {compilers}")
    _say(f"size: {_megabytes(venv)}, of it torch {_megabytes(packages / 'torch')}")


def _serve(
    file: Containerfile, artifact: Path, folder: Path, environment: Mapping[str, str]
) -> int:
    ports = {"INFINITY_PORT": str(_free_port()), "INFINITY_PROMETHEUS_PORT": "0"}
    serving = {
        **_image_environment(file, environment["VENV"]),
        **ports,
        "INFINITY_MODEL_ID": str(artifact),
        "INFINITY_HOSTNAME": "127.0.0.1",
    }
    path = f"{environment['VENV']}/bin"
    command = [f"{path}/{json.loads(_only(file, 'ENTRYPOINT').text)[0]}"]
    launcher = _confinement()
    begun_s = time.perf_counter()
    process = subprocess.Popen([*launcher, *command], env=serving, cwd=folder)
    try:
        _wait_until_healthy(file, serving, process)
        _say(f"healthy after {time.perf_counter() - begun_s:.1f} s, by the image's own HEALTHCHECK")
        _ask(int(ports["INFINITY_PORT"]))
        _say(f"libraries of the system: {', '.join(_system_libraries(process.pid))}")
        process.send_signal(signal.Signals[_only(file, "STOPSIGNAL").text])
        code = process.wait(STOP_TIMEOUT_S)
    finally:
        process.kill()
    _say(f"STOPSIGNAL: exit code {code}")
    return 0 if code == 0 and not _is_healthy(file, serving) else 1


def _image_environment(file: Containerfile, venv: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(_only(file, "ENV").text))
    values = {"VENV": venv, "PATH": ""}
    return {name: expand(value, values).rstrip(":") for name, _, value in pairs}


def _only(file: Containerfile, keyword: str) -> Step:
    (step,) = (step for step in file.image.steps if step.keyword == keyword)
    return step


def _confinement() -> list[str]:
    """The image's user on a read-only root, where this user may set that up."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "mount", "setpriv"))):
        _say("not root, or no unshare, mount and setpriv here: served as this user")
        return []
    user = [
        "--reuid=65532",
        "--regid=65532",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
    ]
    drop = shlex.join([str(shutil.which("setpriv")), *user])
    script = f'PATH=/usr/sbin:/usr/bin:/sbin:/bin; {READ_ONLY_ROOT} && PATH= && exec {drop} "$@"'
    _say("served as user 65532, without capabilities, on a read-only root file system")
    return [str(shutil.which("unshare")), "--mount", "/bin/sh", "-c", script, "sh"]


def _wait_until_healthy(
    file: Containerfile, environment: Mapping[str, str], process: "subprocess.Popen[bytes]"
) -> None:
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not _is_healthy(file, environment):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise SystemExit(f"not healthy; exit code {process.poll()}")
        time.sleep(0.1)


def _is_healthy(file: Containerfile, environment: Mapping[str, str]) -> bool:
    _, _, command = _only(file, "HEALTHCHECK").text.partition(" CMD ")
    program, *arguments = json.loads(command)
    check = [f"{environment['PATH']}/{program}", *arguments]
    done = subprocess.run(check, env=dict(environment), stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def _ask(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"input": TEXTS})
    connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise SystemExit(f"/v1/embeddings answered {reply.status}: {reply.read().decode()}")
    first, near, far = (row["embedding"] for row in json.load(reply)["data"])
    related, others = _cosine(first, near), _cosine(first, far)
    _say(f"similarity of related texts {related:.2f}, of others {others:.2f}")
    if related <= others:
        raise SystemExit("related texts should be more similar than others")


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(left, right, strict=True))
    return dot / (math.hypot(*left) * math.hypot(*right))


def _system_libraries(pid: int) -> list[str]:
    paths = {line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
    found = (SYSTEM_LIBRARY.match(path) for path in paths)
    names = {match["name"] for match in found if match}
    return sorted(name for name in names if "cpython" not in name)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _megabytes(folder: Path) -> str:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return f"{sum(path.stat().st_size for path in files) / 1e6:.0f} MB"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
