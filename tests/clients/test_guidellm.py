"""`guidellm run` against `/v1/embeddings`."""

import json
import subprocess
import sys
from pathlib import Path

from client_kit import NAME, Json, ServerUrl, counted
from compiled import minilm_checkpoint

NUM_REQUESTS = 40


def run(url: str, report: Path) -> Json:
    """Send the requests and give what became of them."""
    program = Path(sys.executable).with_name("guidellm")
    backend = f"kind=openai_http,target={url},request_format=/v1/embeddings,model={NAME}"
    result = subprocess.run(
        [
            *(program, "run", "--backend", backend, "--disable-progress"),
            *("--profile", "kind=concurrent,streams=4"),
            *("--constraint", f"kind=max_requests,count={NUM_REQUESTS}"),
            *("--tokenizer", f"kind=hf_auto,model={minilm_checkpoint()}"),
            *("--data", "kind=synthetic_text,prompt_tokens=128,output_tokens=1"),
            *("--output", f"kind=json,path={report}"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    return benchmark["metrics"]["request_totals"]


def test_run(server: ServerUrl, tmp_path: Path) -> None:
    url = server("embedding")
    with counted(url, "te_request_success"):
        totals = run(url, tmp_path / "report.json")
    assert totals["successful"] == NUM_REQUESTS
    assert totals["errored"] == totals["incomplete"] == 0
