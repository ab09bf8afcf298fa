"""Which requests are computed on the event loop's thread, and what becomes of them."""

import asyncio
import threading

import pytest

from fake_engine import FakeEngine, pooled
from infinity_v3.runtime.brief_calls import MAX_CALL_S, MAX_TOKENS, MIN_IN_A_ROW, BriefCalls
from infinity_v3.runtime.observer import SilentObserver
from infinity_v3.runtime.requests import EmbedRequest, Schedule, TextOptions
from infinity_v3.runtime.service import InferenceService
from infinity_v3.runtime.settings import ServiceSettings
from infinity_v3.runtime.state import ServiceState
from tiny_models import END, START, fake_model


def measured(*engine_s: float) -> BriefCalls:
    calls = BriefCalls()
    for seconds in engine_s:
        calls.called(num_tokens=MAX_TOKENS, engine_s=seconds)
    return calls


def asked_often(calls: BriefCalls, count: int) -> list[bool]:
    return [calls.asked(MAX_TOKENS, is_alone=True) for _ in range(count)]


def test_brief_requests_of_a_client_that_was_alone_for_a_while() -> None:
    answers = asked_often(measured(MAX_CALL_S / 2), MIN_IN_A_ROW + 2)
    assert answers == [False] * MIN_IN_A_ROW + [True, True]


def test_nothing_is_brief_before_a_call_was_measured() -> None:
    assert True not in asked_often(measured(), MIN_IN_A_ROW + 2)


@pytest.mark.parametrize(("num_tokens", "is_alone"), [(MAX_TOKENS + 1, True), (1, False)])
def test_another_request_starts_the_count_again(num_tokens: int, is_alone: bool) -> None:
    calls = measured(MAX_CALL_S / 2)
    asked_often(calls, MIN_IN_A_ROW)
    assert not calls.asked(num_tokens, is_alone=is_alone)
    assert asked_often(calls, MIN_IN_A_ROW + 1) == [False] * MIN_IN_A_ROW + [True]


@pytest.mark.parametrize(("engine_s", "is_brief"), [(MAX_CALL_S, True), (MAX_CALL_S * 1.01, False)])
def test_calls_that_would_hold_up_the_event_loop(engine_s: float, is_brief: bool) -> None:
    assert asked_often(measured(engine_s), MIN_IN_A_ROW + 1)[-1] is is_brief


def test_slow_calls_are_forgotten() -> None:
    calls = measured(MAX_CALL_S * 2, *[MAX_CALL_S / 2] * 10)
    assert asked_often(calls, MIN_IN_A_ROW + 1)[-1]


def test_long_calls_say_nothing_of_brief_ones() -> None:
    calls = measured(MAX_CALL_S / 2)
    calls.called(num_tokens=MAX_TOKENS + 1, engine_s=1.0)
    assert asked_often(calls, MIN_IN_A_ROW + 1)[-1]


def question(*, is_alone: bool) -> EmbedRequest:
    return EmbedRequest(
        items=("w5",),
        is_list=False,
        options=TextOptions(),
        schedule=Schedule(is_alone=is_alone),
        normalize=False,
    )


async def ask(service: InferenceService, *, is_alone: bool = True) -> None:
    (row,) = (await service.embed(question(is_alone=is_alone))).rows
    assert row.tolist() == pooled([START, 5, END]).tolist()


async def until_alone(service: InferenceService, engine: FakeEngine) -> None:
    """Ask until the event loop's thread computes."""
    own = threading.get_ident()
    for _ in range(4 * MIN_IN_A_ROW):
        await ask(service)
        if own in engine.owners:
            return
        # The engine thread says that it is idle after it has reported.
        await asyncio.sleep(0.01)
    pytest.fail("the event loop's thread never computed")


def test_brief_requests_that_are_alone_are_computed_on_the_event_loops_thread() -> None:
    async def scenario() -> None:
        engine, own = FakeEngine(), threading.get_ident()
        service = InferenceService(fake_model(engine), ServiceSettings(), SilentObserver())
        service.start()
        await ask(service)
        assert own not in engine.owners
        await until_alone(service, engine)
        assert engine.owners == {own}
        await ask(service, is_alone=False)
        assert own not in engine.owners
        await until_alone(service, engine)
        stats = service.stats()
        assert (stats.num_requests, stats.num_pending_tokens) == (0, 0)
        assert service.close()
        assert own not in engine.owners

    asyncio.run(scenario())


def test_a_bug_in_such_a_call_ends_the_request_and_takes_the_model_down() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        service = InferenceService(fake_model(engine), ServiceSettings(), SilentObserver())
        service.start()
        await until_alone(service, engine)

        def break_down() -> None:
            raise KeyError("a bug")

        engine.poison = break_down
        with pytest.raises(KeyError, match="a bug"):
            await service.embed(question(is_alone=True))
        stats = service.stats()
        assert (stats.num_requests, stats.num_pending_tokens) == (0, 0)
        assert service.state is ServiceState.FAILED
        assert service.close()

    asyncio.run(scenario())
