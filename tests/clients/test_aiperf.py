"""`aiperf profile` against the routes for vectors and for ranking."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from client_kit import NAME, Json, ServerUrl, counted
from compiled import minilm_checkpoint

NUM_REQUESTS = 40


def profile(url: str, folder: Path, *options: str) -> Json:
    """Send the requests and give the report."""
    program = Path(sys.executable).with_name("aiperf")
    command: list[str | Path] = [program, "profile", "--model", NAME, "--url", url]
    command += ["--tokenizer", minilm_checkpoint(), "--ui", "none", "--artifact-dir", folder]
    command += ["--request-count", str(NUM_REQUESTS), "--concurrency", "4", "--isl", "32", *options]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    return json.loads((folder / "profile_export_aiperf.json").read_text())


@pytest.mark.parametrize(
    ("name", "route", "options"),
    [
        ("embedding", "embeddings", ("--batch-size", "32")),
        ("reranker", "hf-tei-rankings", ()),
        ("reranker", "cohere-rankings", ()),
    ],
)
def test_profile(
    server: ServerUrl, tmp_path: Path, name: str, route: str, options: tuple[str, ...]
) -> None:
    url = server(name)
    with counted(url, "te_request_success"):
        report = profile(url, tmp_path, "--endpoint-type", route, *options)
    assert report["is_complete"]
    assert not report["error_summary"]
    assert report["request_count"]["avg"] == NUM_REQUESTS
    assert report["request_latency"]["min"] > 0
