"""What a build prints at its end, for people and for programs."""

import json
from dataclasses import replace

from infinity_v3.compiler.builds.outcome import Outcome, Result
from infinity_v3.compiler.builds.report import summary_json, summary_text

BUILT = Outcome(
    name="one",
    version="1.0",
    result=Result.BUILT,
    build_key="ab" * 32,
    artifact_id="sha256:" + "0123456789abcdef" * 4,
    num_bytes=1536,
    duration_s=62.25,
    worst="pooled.max_abs 3e-06 of cpu",
    push_to="staging",
)
FAILED = Outcome(
    name="seventeen",
    version="{key}",
    result=Result.FAILED,
    exit_code=2,
    message="no such directory",
    push_to="staging",
)


def test_the_table() -> None:
    assert summary_text((BUILT, FAILED), "/srv/registry") == (
        "model      version  result  id               size  seconds  worst parity figure\n"
        "one        1.0      built   0123456789ab  1.5 KiB     62.2  pooled.max_abs 3e-06 of cpu\n"
        "seventeen  {key}    failed  -                   -      0.0  -\n"
        "seventeen=={key}: no such directory\n"
        "left to promote:\n"
        "  infinity-compile registry promote one --version 1.0 --to staging --registry "
        "/srv/registry\n"
    )


def test_nothing_is_left_to_promote_without_a_registry() -> None:
    assert "promote" not in summary_text((BUILT,), None)
    left_out = replace(BUILT, result=Result.LEFT_OUT, artifact_id=None)
    assert "promote" not in summary_text((left_out,), "/srv/registry")


def test_the_document() -> None:
    document = json.loads(json.dumps(summary_json((BUILT, FAILED), "s3://b/r")))
    assert document["exit_code"] == 2
    assert document["promote"] == [
        [
            *("infinity-compile", "registry", "promote", "one"),
            *("--version", "1.0", "--to", "staging", "--registry", "s3://b/r"),
        ]
    ]
    one, two = document["models"]
    assert one == {
        "name": "one",
        "version": "1.0",
        "result": "built",
        "exit_code": 0,
        "message": "",
        "id": BUILT.artifact_id,
        "build_key": BUILT.build_key,
        "bytes": 1536,
        "seconds": 62.25,
        "worst_figure": BUILT.worst,
        "path": None,
        "push_to": "staging",
        "gates": [],
        "log": [],
    }
    assert (two["result"], two["id"]) == ("failed", None)
