"""Fifty versions that share weights; `tests/bench/registry_scale.py` measures five hundred."""

from pathlib import Path

from many_versions import run_scale


def test_many_versions_share_what_is_equal(tmp_path: Path) -> None:
    figures = run_scale(tmp_path, num_versions=50, weight_bytes=1 << 20, rounds=1)
    assert figures.last_bytes == figures.expected_last_bytes < 20_000
    assert figures.first_bytes > 1 << 20
    assert figures.stored_bytes < 2 * figures.first_bytes
    assert figures.is_gc_exact
