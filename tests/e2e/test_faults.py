"""The short form of the load and fault scenarios; `make faults` runs the long one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fault_claims import Scenario
from fault_drain import drains
from fault_report import picture, render
from fault_restarts import killed_and_restarted
from fault_scenarios import ON_ONE_SERVER, OPTIONS
from fault_target import Target
from load_plan import LoadMix, make_mix, make_texts
from load_process import split_cpus
from load_references import from_idle_server
from load_scenario import run_load
from server_process import ServerProcess

NUM_TEXTS = 24
LOAD_S = 5.0
# The capacity is measured for a moment only, while other tests may be busy.
OVERLOAD = 4.0
# What other tests hold to as strictly on servers of their own.
LONG_ONLY = {"disconnects", "slow_heads"}
SHORT = [work for work, _ in ON_ONE_SERVER if work.__name__ not in LONG_ONLY]


@pytest.fixture(scope="module")
def target(minilm_artifact: Path) -> Iterator[Target]:
    with ServerProcess(minilm_artifact, "--body-read-timeout", "1", *OPTIONS) as server:
        yield Target.of(server)


@pytest.fixture(scope="module")
def mix(target: Target) -> LoadMix:
    texts = make_texts(1, NUM_TEXTS)
    return make_mix(texts, from_idle_server(target.server, texts), 2)


@pytest.mark.parametrize("work", SHORT, ids=lambda work: work.__name__)
def test_fault(target: Target, work: Callable[..., None]) -> None:
    scenario = Scenario(name=work.__name__, what="")
    work(target, scenario, is_long=False)
    assert scenario.claims
    assert scenario.failures == []


def test_killed_and_restarted(minilm_artifact: Path) -> None:
    scenario = Scenario(name="kill -9", what="")
    killed_and_restarted(minilm_artifact, scenario, num_kills=1, options=OPTIONS)
    assert scenario.failures == []


def test_drains(minilm_artifact: Path, mix: LoadMix) -> None:
    scenario = Scenario(name="drain", what="")
    drains(minilm_artifact, scenario, mix, before_s=0.5, options=OPTIONS)
    assert scenario.failures == []


def test_overload(minilm_artifact: Path, mix: LoadMix) -> None:
    scenario, load = run_load(
        minilm_artifact,
        mix,
        split_cpus(),
        duration_s=LOAD_S,
        seed=5,
        say=lambda text: None,
        overload=OVERLOAD,
    )
    assert scenario.failures == []
    assert load is not None
    assert "slowest tokens/s" in render([scenario], load, {"commit": "none"})
    assert picture(load).count("<path") > 10
