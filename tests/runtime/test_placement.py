"""Replicas get CPUs of their own: whole cores first, and those of one socket together."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.profile import TargetProfile
from infinity_v3.runtime import placement
from infinity_v3.runtime.placement import Placement, in_order, place, read_cores
from infinity_v3.runtime.team import TeamSizes


def use_cpus(monkeypatch: pytest.MonkeyPatch, *cpus: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cpus))
    cores = {cpu: (0, cpu) for cpu in cpus}
    monkeypatch.setattr(placement, "read_cores", lambda _: cores)


def test_one_replica_is_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cpus(monkeypatch, 0, 1, 2, 3)
    assert place(1, None) == Placement(num_threads=4, spared_threads=3)
    measured = TargetProfile(num_threads=3)
    assert place(1, None, measured) == Placement(num_threads=3)
    assert place(1, 4, measured) == Placement(num_threads=4, spared_threads=3)
    assert place(None, None) == Placement(num_threads=4, spared_threads=3)


def test_one_replica_on_all_cpus_can_spare_one(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cpus(monkeypatch, 0, 1)
    assert place(1, 2).team == TeamSizes(whole=2, spared=1)
    assert place(1, 1).team is None, "one is free anyway"
    assert place(1, 9).team == TeamSizes(whole=2, spared=1), "more than there are"
    assert place(2, 1).team is None, "pinned"
    use_cpus(monkeypatch, 5)
    assert place(None, None).team is None, "none to spare"


def test_replicas_share_the_cpus_out(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cpus(monkeypatch, 2, 3, 5, 6, 9)
    own = (frozenset({2, 3}), frozenset({5, 6}))
    assert place(2, None, TargetProfile(num_threads=5)) == Placement(num_threads=2, cpus=own)
    assert place(2, 1).cpus == (frozenset({2}), frozenset({3}))
    with pytest.raises(UsageError, match=r"--cpu-replicas 2 with 3 threads each: .* 5 CPUs"):
        place(2, 3)


def test_what_was_measured_is_taken_for_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cpus(monkeypatch, 0, 1, 2, 3)
    measured = TargetProfile(num_replicas=3, num_threads=1)
    own = tuple(frozenset({cpu}) for cpu in range(3))
    assert place(None, None, measured) == Placement(num_threads=1, cpus=own)
    assert place(3, None, measured) == Placement(num_threads=1, cpus=own)
    # Threads of one among three say nothing of one alone, nor of one of two.
    assert place(1, None, measured).num_threads == 4
    assert place(2, None, measured).num_threads == 2
    assert place(None, 2, measured) == Placement(num_threads=2)


def test_what_was_measured_on_more_cpus_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cpus(monkeypatch, 0, 1, 2, 3)
    measured = TargetProfile(num_replicas=4, num_threads=8)
    found = place(None, None, measured)
    assert (found.num_replicas, found.num_threads) == (1, 4)
    assert [note for note in found.notes if "the 4 of 8 threads" in note and "4 CPUs" in note]
    assert place(4, None, measured).num_threads == 1
    assert place(1, 2, measured) == Placement(num_threads=2)


def test_more_threads_than_cpus_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cpus(monkeypatch, 0, 1, 2, 3)
    measured = TargetProfile(num_threads=5)
    for replicas in (None, 1):
        found = place(replicas, None, measured)
        assert (found.num_threads, len(found.notes)) == (4, 1)
        assert "the 5 threads that were measured need more than the 4 CPUs" in found.notes[0]
    assert place(2, None, measured).num_threads == 2
    for asked_for in (5, 4096):
        found = place(None, asked_for, measured)
        assert (found.num_threads, len(found.notes)) == (4, 1)
        assert f"the {asked_for} threads that were asked for need more" in found.notes[0]


def test_second_threads_of_cores_come_last() -> None:
    # Two sockets of two cores, each with two threads, numbered as Linux does.
    cores = {cpu: (cpu // 2 % 2, cpu % 2) for cpu in range(8)}
    assert in_order(range(8), cores) == [0, 1, 2, 3, 4, 5, 6, 7]
    interleaved = {cpu: (cpu % 2, cpu // 2 % 2) for cpu in range(8)}
    assert in_order(range(8), interleaved) == [0, 2, 1, 3, 4, 6, 5, 7]


@given(st.dictionaries(st.integers(0, 99), st.tuples(st.integers(0, 1), st.integers(0, 7))))
def test_every_cpu_comes_once_and_cores_come_before_their_second_threads(
    cores: dict[int, tuple[int, int]],
) -> None:
    ordered = in_order(cores, cores)
    assert sorted(ordered) == sorted(cores)
    first = ordered[: len(set(cores.values()))]
    assert {cores[cpu] for cpu in first} == set(cores.values())


def test_the_system_says_which_core_a_cpu_is(tmp_path: Path) -> None:
    topology = tmp_path / "cpu3" / "topology"
    topology.mkdir(parents=True)
    (topology / "physical_package_id").write_text("1\n")
    (topology / "core_id").write_text("7\n")
    assert read_cores([3, 4], tmp_path) == {3: (1, 7), 4: (0, 4)}
