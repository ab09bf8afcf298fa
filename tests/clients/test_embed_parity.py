"""`embed-parity compare` with this server as the TEI and sentence-transformers as the reference."""

import json
import subprocess
import sys
from pathlib import Path

from client_kit import NAME, ServerUrl
from compiled import minilm_checkpoint


def test_compare(server: ServerUrl, tmp_path: Path) -> None:
    # Server and reference have to name their model alike: each names a folder beside it.
    (tmp_path / NAME).symlink_to(minilm_checkpoint())
    report = tmp_path / "report.json"
    program = Path(sys.executable).with_name("embed-parity")
    command: list[str | Path] = [
        program,
        "compare",
        "--model",
        f"./{NAME}",
        "--tei",
        server("embedding"),
    ]
    command += ["--device", "cpu", "--json", report, "--concurrent-requests", "16"]
    command += ["--vector-min", "0.99999", "--batch-min", "0.99999"]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    found = json.loads(report.read_text())
    assert found["passed"]
    assert found["requested_probe_count"] == 100
    # The three others are empty or blank: no TEI takes them.
    assert {probe["category"] for probe in found["skipped_probes"]} == {"empty"}
    assert found["probe_count"] == 97
