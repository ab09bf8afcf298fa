"""`infinity-compile tune`: what it prints. Knows nothing of how anything is measured."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from infinity_v3.artifacts.store import open_artifact
from infinity_v3.artifacts.target import DtypeChoice
from infinity_v3.compiler.progress import choose_progress
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options
from infinity_v3.compiler.registry.target import artifact_path
from infinity_v3.compiler.tuning import LATENCY_BOUND_S, TuneReport, TuneSettings

_MS = 1e3
BUSY_LOAD = 0.5
"""Programs that ran or waited for a CPU in the last minute, on average."""


@click.command()
@click.argument("artifact")
@click.option(
    "--dtype",
    type=click.Choice([choice.value for choice in DtypeChoice]),
    default=DtypeChoice.AUTO.value,
    show_default=True,
    help="Measure the target that a server with this --dtype runs here.",
)
@click.option(
    "--latency-bound-ms",
    type=click.FloatRange(min=0.0, min_open=True),
    default=LATENCY_BOUND_S * _MS,
    show_default=True,
    help="Fill no batch to more than the engine computes in this time. Larger batches may be "
    "faster; who comes next waits longer.",
)
@click.option(
    "--allow-shared-artifacts",
    "allow_shared",
    is_flag=True,
    help="Load native code that other users own or can write to.",
)
@registry_options
@click.option(
    "--json", "is_json", is_flag=True, help="Print one JSON document on stdout, and no progress."
)
def tune(  # one parameter per option
    place: RegistryPlace,
    artifact: str,
    dtype: str,
    latency_bound_ms: float,
    allow_shared: bool,
    is_json: bool,
) -> None:
    """Measure ARTIFACT on this host, which should be idle, and record what serves it best.

    Threads of an engine call, tokens of a batch, how long idle threads spin, throughput and
    start-up time go to its profile.json, which servers read. The artifact's id stays the same.
    ARTIFACT is a directory, or a reference into a registry, of which the copy in this user's cache
    is measured.
    """
    settings = TuneSettings(dtype=DtypeChoice(dtype), latency_bound_s=latency_bound_ms / _MS)
    progress = choose_progress(sys.stderr, is_silent=is_json, terminal=os.environ.get("TERM", ""))
    path = artifact_path(artifact, place, progress)
    run_tune(path, settings, allow_shared=allow_shared, is_json=is_json)


def run_tune(path: Path, settings: TuneSettings, *, allow_shared: bool, is_json: bool) -> None:
    """Measure an artifact and print the figures and what follows from them.

    Raises:
        RefusedError: not a whole artifact, or this host runs none of its targets.
        RunFailedError: an engine or a server failed, or the profile cannot be written.
    """
    artifact = open_artifact(path, allow_shared=allow_shared)
    progress = choose_progress(sys.stderr, is_silent=is_json, terminal=os.environ.get("TERM", ""))
    if (load := os.getloadavg()[0]) >= BUSY_LOAD:
        progress.note(
            f"warning: this host is busy, its load average is {load:.1f}: what is measured beside "
            "other work may serve an idle host badly; tune again when it is idle"
        )
    # Not before it is needed: it makes every other command slower to start.
    from infinity_v3.compiler.tune import tune_artifact

    report = tune_artifact(artifact, settings, progress)
    progress.finish()
    text = json.dumps(asdict(report)) if is_json else "\n".join(_lines(report))
    sys.stdout.write(text + "\n")


def _lines(report: TuneReport) -> Iterator[str]:
    """Two tables and the choice; what was chosen is marked."""
    chosen = report.profile
    sizes = list(report.engines[0].seconds)
    yield f"{report.target}: tokens/s of one engine call, by tokens of its batch"
    yield "  threads " + "".join(f"{size:>9}" for size in sizes)
    for engine in report.engines:
        mark = "*" if engine.num_threads == chosen.num_threads else " "
        rates = "".join(f"{engine.tokens_per_s[size]:>9.0f}" for size in sizes)
        yield f"{mark} {engine.num_threads:>7} {rates}"
    yield "a server whose idle threads look for work so often before they sleep"
    yield "      spins   p50 ms   p99 ms  requests/s"
    for server in report.servers:
        mark = "*" if server.spin_count == chosen.spin_count else " "
        yield (
            f"{mark} {server.spin_count:>9} {server.p50_s * _MS:>8.2f} {server.p99_s * _MS:>8.2f} "
            f"{server.requests_per_s:>11.0f}"
        )
    spins = "" if chosen.spin_count is None else f", {chosen.spin_count} spins"
    yield (
        f"recorded: threads {chosen.num_threads}, batches of {chosen.fill_tokens} tokens{spins}; "
        f"{chosen.tokens_per_s:.0f} tokens/s, ready in {chosen.startup_s} s"
    )
