"""The service as the server sees it: results, the order of checks, limits, deadlines, drain."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest

from fake_engine import WIDTH, FakeEngine, hidden, pooled
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.observer import SilentObserver
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.runtime.requests import (
    DecodeRequest,
    EmbedRequest,
    EmbedTokensRequest,
    Schedule,
    TextInput,
    TextOptions,
    TokenizeRequest,
    TruncationSide,
)
from infinity_v3.runtime.service import InferenceService
from infinity_v3.runtime.settings import ServiceSettings
from infinity_v3.runtime.state import ServiceState
from tiny_models import END, MAX_INPUT_TOKENS, START, VOCAB_SIZE, fake_model

DEADLINE_S = 10.0
BAD = 99


@asynccontextmanager
async def serving(
    engine: FakeEngine,
    settings: ServiceSettings | None = None,
    model: LoadedModel | None = None,
) -> AsyncIterator[InferenceService]:
    """A started service; afterwards nothing may be left in it."""
    service = InferenceService(
        model or fake_model(engine), settings or ServiceSettings(), SilentObserver()
    )
    service.start()
    try:
        yield service
        await until(lambda: service.stats().num_pending_items == 0)
        assert_empty(service)
    finally:
        engine.gate.set()
        assert service.close()
        assert engine.is_closed


def assert_empty(service: InferenceService) -> None:
    stats = service.stats()
    assert stats.num_requests == 0
    assert stats.num_queued_items == 0
    assert stats.num_pending_items == 0
    assert stats.num_pending_tokens == 0


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        await asyncio.sleep(0.001)


def embed(*items: TextInput, **fields: object) -> EmbedRequest:
    defaults: dict[str, object] = {"items": items, "is_list": True, "normalize": False}
    return EmbedRequest(**(defaults | fields))  # type: ignore[arg-type]  # fields by name


async def error_of(call: Awaitable[object]) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        await call
    return caught.value


def test_rows_come_in_request_order_from_several_batches() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        items: list[TextInput] = []
        for index in range(100):
            ids = tuple(range(3, 4 + index % 20))
            items.append(ids if index % 3 else " ".join(f"w{token_id}" for token_id in ids))
        async with serving(engine) as service:
            result = await service.embed(embed(*items))
        assert len(engine.batches) > 3
        for index, row in enumerate(result.rows):
            ids = tuple(range(3, 4 + index % 20))
            fed = ids if index % 3 else (START, *ids, END)
            np.testing.assert_array_equal(row, pooled(fed))
            assert result.item_tokens[index] == len(fed)
        assert result.num_tokens == sum(result.item_tokens)

    asyncio.run(scenario())


def test_vectors_are_cut_then_normalised() -> None:
    async def scenario() -> None:
        async with serving(FakeEngine()) as service:
            result = await service.embed(embed((5, 6), normalize=True, dimensions=3))
        expected = pooled((5, 6))[:3].astype(np.float64)
        np.testing.assert_allclose(result.rows[0], expected / np.linalg.norm(expected), atol=1e-7)
        assert result.rows[0].dtype == np.float32

    asyncio.run(scenario())


def test_token_matrices_have_a_row_per_token_and_are_raw() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        async with serving(engine) as service:
            request = EmbedTokensRequest(items=("w5 w6", (7, 8, 9)), is_list=True)
            result = await service.embed_tokens(request)
        np.testing.assert_array_equal(result.rows[0], hidden((START, 5, 6, END)))
        np.testing.assert_array_equal(result.rows[1], hidden((7, 8, 9)))
        assert engine.outputs == [frozenset({"hidden"})]

    asyncio.run(scenario())


def test_timing_is_a_mean_per_item() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.poison = lambda: time.sleep(0.02)
        async with serving(engine) as service:
            timing = (await service.embed(embed("w5", "w6"))).timing
        assert 0.02 <= timing.inference_s < 1.0
        assert 0.0 <= timing.queue_s < 1.0
        assert 0.0 < timing.tokenization_s < 1.0

    asyncio.run(scenario())


REFUSALS = [
    (embed(), ErrorKind.EMPTY, "empty_input", "`inputs` cannot be empty", None),
    (embed("", is_list=False), ErrorKind.EMPTY, "empty_input", "`inputs` cannot be empty", None),
    (embed("w5", ""), ErrorKind.EMPTY, "empty_input", "Input validation error", 1),
    (embed((5,), ()), ErrorKind.EMPTY, "empty_input", "`inputs` cannot be empty", 1),
    (embed("w5", "\ud800"), ErrorKind.VALIDATION, "invalid_value", "surrogate", 1),
    (embed("\ud800", ""), ErrorKind.VALIDATION, "invalid_value", "surrogate", 0),
    (embed("w5", dimensions=0), ErrorKind.VALIDATION, "invalid_dimensions", "positive", None),
    (embed("w5", dimensions=-1), ErrorKind.VALIDATION, "invalid_dimensions", "positive", None),
    (
        embed("w5", dimensions=WIDTH + 1),
        ErrorKind.VALIDATION,
        "invalid_dimensions",
        "smaller than the maximum embedding dimension",
        None,
    ),
    (
        embed("w5", options=TextOptions(prompt_name="nope")),
        ErrorKind.VALIDATION,
        "unknown_prompt",
        "query, passage",
        None,
    ),
    (
        embed("w5", (5,), options=TextOptions(prompt_name="query")),
        ErrorKind.VALIDATION,
        "invalid_value",
        "token ids",
        1,
    ),
    (
        embed("w5", options=TextOptions(max_tokens=0)),
        ErrorKind.VALIDATION,
        "invalid_value",
        "1 to 64",
        None,
    ),
    (
        embed("w5", options=TextOptions(max_tokens=65)),
        ErrorKind.VALIDATION,
        "invalid_value",
        "1 to 64",
        None,
    ),
    (embed((5,), (VOCAB_SIZE,)), ErrorKind.VALIDATION, "invalid_token_id", "position 0", 1),
    (embed((VOCAB_SIZE,), is_list=False), ErrorKind.VALIDATION, "invalid_token_id", "1000", None),
    (
        embed("w5", "w5 " * 90, options=TextOptions(truncate=False)),
        ErrorKind.VALIDATION,
        "input_too_long",
        "must have less than 64 tokens. Given: 92",
        1,
    ),
]


@pytest.mark.parametrize(("request_", "kind", "code", "fragment", "item"), REFUSALS)
def test_refused_before_the_engine_is_called(
    request_: EmbedRequest, kind: ErrorKind, code: str, fragment: str, item: int | None
) -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        model = fake_model(engine, prompts=PromptTable(named={"query": "w7 ", "passage": "w8 "}))
        async with serving(engine, model=model) as service:
            error = await error_of(service.embed(request_))
            assert (error.kind, error.code, error.item) == (kind, code, item)
            assert fragment in error.message
        assert engine.batches == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("default", "options", "fed"),
    [
        ("", TextOptions(), (START, 5, END)),
        ("w8 ", TextOptions(), (START, 8, 5, END)),
        ("w8 ", TextOptions(prompt_name="query"), (START, 7, 5, END)),
        ("", TextOptions(prompt_name="query"), (START, 7, 5, END)),
        ("", TextOptions(prompt_name="query", max_tokens=3), (START, 7, END)),
        (
            "",
            TextOptions(prompt_name="query", max_tokens=3, truncation_side=TruncationSide.LEFT),
            (START, 5, END),
        ),
    ],
)
def test_prompts_are_counted_and_cut_with_the_text(
    default: str, options: TextOptions, fed: tuple[int, ...]
) -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        model = fake_model(engine, prompts=PromptTable(named={"query": "w7 "}, default=default))
        async with serving(engine, model=model) as service:
            await service.embed(embed("w5", options=options))
        assert engine.batches == [(fed,)]

    asyncio.run(scenario())


def test_the_default_prompt_is_not_applied_to_ids() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        model = fake_model(engine, prompts=PromptTable(named={}, default="w8 "))
        async with serving(engine, model=model) as service:
            await service.embed(embed((5, 6)))
        assert engine.batches == [((5, 6),)]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("is_truncating", "truncate", "max_tokens", "is_cut"),
    [
        (True, None, None, True),
        (True, False, None, False),
        (False, None, None, False),
        (False, True, None, True),
        (False, None, 5, True),
        (True, False, 5, False),
    ],
)
def test_who_decides_whether_texts_are_cut(
    is_truncating: bool, truncate: bool | None, max_tokens: int | None, is_cut: bool
) -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        options = TextOptions(truncate=truncate, max_tokens=max_tokens)
        settings = ServiceSettings(is_truncating=is_truncating)
        async with serving(engine, settings) as service:
            call = service.embed(embed("w5 " * 90, options=options))
            if is_cut:
                assert (await call).num_tokens == (max_tokens or MAX_INPUT_TOKENS)
            else:
                assert (await error_of(call)).code == "input_too_long"

    asyncio.run(scenario())


def test_large_requests_leave_the_loop_free() -> None:
    async def scenario() -> None:
        async with serving(FakeEngine(), ServiceSettings(max_queue_tokens=10**6)) as service:
            texts = ["w5 w6 w7 " * 15] * 1000
            num_turns = 0
            task = asyncio.create_task(service.embed(embed(*texts)))
            while not task.done():
                await asyncio.sleep(0)
                num_turns += 1
            assert len((await task).rows) == 1000
        # Tokenised or packed on the loop, the request would leave it a handful of turns.
        assert num_turns > 50

    asyncio.run(scenario())


def test_tokenize_and_decode() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        model = fake_model(engine, prompts=PromptTable(named={"query": "w7 "}, default="w8 "))
        async with serving(engine, model=model) as service:
            (pieces,) = await service.tokenize(TokenizeRequest(texts=("w5",), is_list=False))
            assert [(p.token_id, p.text, p.start, p.stop) for p in pieces] == [
                (START, "<s>", None, None),
                (8, "w8", 0, 2),
                (5, "w5", 3, 5),
                (END, "</s>", None, None),
            ]
            (named,) = await service.tokenize(
                TokenizeRequest(
                    texts=("w5",), is_list=True, add_special_tokens=False, prompt_name="query"
                )
            )
            assert [p.token_id for p in named] == [7, 5]
            decoded = await service.decode(DecodeRequest(id_lists=((5, 6), (7,)), is_list=True))
            assert decoded == ("w5 w6", "w7")
            large = await service.decode(DecodeRequest(id_lists=((5,),) * 500, is_list=True))
            assert large == ("w5",) * 500

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("id_lists", "is_list", "kind", "code", "item"),
    [
        ((), True, ErrorKind.EMPTY, "empty_input", None),
        (((),), False, ErrorKind.EMPTY, "empty_input", None),
        (((5,), ()), True, ErrorKind.EMPTY, "empty_input", 1),
        (((5,), (VOCAB_SIZE,)), True, ErrorKind.VALIDATION, "invalid_token_id", 1),
    ],
)
def test_decode_refusals(
    id_lists: tuple[tuple[int, ...], ...],
    is_list: bool,
    kind: ErrorKind,
    code: str,
    item: int | None,
) -> None:
    async def scenario() -> None:
        async with serving(FakeEngine()) as service:
            request = DecodeRequest(id_lists=id_lists, is_list=is_list)
            error = await error_of(service.decode(request))
            assert (error.kind, error.code, error.item) == (kind, code, item)

    asyncio.run(scenario())


def test_one_slot_means_one_request_at_a_time() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.gate.clear()
        async with serving(engine, ServiceSettings(max_concurrent_requests=1)) as service:
            first = asyncio.create_task(service.embed(embed("w5", "w6", "w7")))
            await until(engine.entered.is_set)
            for call in (
                service.embed(embed("w8")),
                service.tokenize(TokenizeRequest(texts=("w5",), is_list=True)),
                service.decode(DecodeRequest(id_lists=((5,),), is_list=True)),
            ):
                error = await error_of(call)
                assert error.kind is ErrorKind.OVERLOADED
                assert error.retry_after_s is not None
                assert error.retry_after_s >= 1
            assert (await error_of(service.embed(embed("", "w8")))).kind is ErrorKind.EMPTY
            engine.gate.set()
            await first
            await service.embed(embed("w8"))

    asyncio.run(scenario())


def test_a_request_is_admitted_whole_or_refused_whole() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.gate.clear()
        async with serving(engine, ServiceSettings(max_queue_tokens=100)) as service:
            too_large = await error_of(service.embed(embed(*[(5,) * 20] * 6)))
            assert (too_large.kind, too_large.code) == (ErrorKind.VALIDATION, "input_too_long")
            first = asyncio.create_task(service.embed(embed(*[(5,) * 20] * 4)))
            await until(engine.entered.is_set)
            error = await error_of(service.embed(embed((7,) * 20, (8,))))
            assert error.kind is ErrorKind.OVERLOADED
            assert service.stats().num_pending_tokens == 80
            engine.gate.set()
            await first
            await service.embed(embed((9,) * 20, (9,)))
        fed = {token_id for batch in engine.batches for ids in batch for token_id in ids}
        assert fed == {5, 9}

    asyncio.run(scenario())


def test_a_cancelled_request_leaves_the_queue_at_once() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.gate.clear()
        async with serving(engine) as service:
            first = asyncio.create_task(service.embed(embed((5,))))
            await until(engine.entered.is_set)
            gone = asyncio.create_task(service.embed(embed((6,), (7,))))
            await until(lambda: service.stats().num_queued_items == 2)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            stats = service.stats()
            assert (stats.num_queued_items, stats.num_pending_tokens) == (0, 1)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert service.stats().num_requests == 0
            engine.gate.set()
        assert engine.batches == [((5,),)]

    asyncio.run(scenario())


def test_a_deadline_in_the_queue_gives_a_timeout_at_that_moment() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.gate.clear()
        async with serving(engine) as service:
            first = asyncio.create_task(service.embed(embed((5,))))
            await until(engine.entered.is_set)
            schedule = Schedule(deadline_s=time.monotonic() + 0.03)
            started = time.monotonic()
            error = await error_of(service.embed(embed((6,), (7,), schedule=schedule)))
            assert (error.kind, error.code) == (ErrorKind.REQUEST_TIMEOUT, "request_timeout")
            assert 0.02 < time.monotonic() - started < 5.0
            assert service.stats().num_queued_items == 0
            engine.gate.set()
            await first
        assert engine.batches == [((5,),)]

    asyncio.run(scenario())


def test_a_deadline_that_passes_while_the_batch_runs_does_not_matter() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.poison = lambda: time.sleep(0.05)
        async with serving(engine) as service:
            schedule = Schedule(deadline_s=time.monotonic() + 0.03)
            assert len((await service.embed(embed((6,), schedule=schedule))).rows) == 1

    asyncio.run(scenario())


def test_a_deadline_in_the_past_never_reaches_the_engine() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        async with serving(engine) as service:
            schedule = Schedule(deadline_s=time.monotonic() - 1.0)
            error = await error_of(service.embed(embed((6,), schedule=schedule)))
            assert error.kind is ErrorKind.REQUEST_TIMEOUT
        assert engine.batches == []

    asyncio.run(scenario())


def test_priority_overtakes_a_backlog() -> None:
    async def scenario() -> None:
        engine = FakeEngine(max_sequences=1)
        engine.gate.clear()
        async with serving(engine) as service:
            first = asyncio.create_task(service.embed(embed((5,))))
            await until(engine.entered.is_set)
            backlog = asyncio.create_task(service.embed(embed((6,), (7,))))
            await until(lambda: service.stats().num_queued_items == 2)
            urgent = asyncio.create_task(
                service.embed(embed((8,), schedule=Schedule(is_priority=True)))
            )
            await until(lambda: service.stats().num_queued_items == 3)
            engine.gate.set()
            await asyncio.gather(first, backlog, urgent)
        assert engine.batches == [((5,),), ((8,),), ((6,),), ((7,),)]

    asyncio.run(scenario())


def test_the_batch_item_limit_holds() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        async with serving(engine, ServiceSettings(max_batch_requests=4)) as service:
            await service.embed(embed(*[(5,) * (1 + index % 3) for index in range(30)]))
        assert max(len(batch) for batch in engine.batches) == 4

    asyncio.run(scenario())


def test_a_failing_item_fails_its_request_only_and_names_itself() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.gate.clear()
        engine.non_finite_ids = {BAD}
        async with serving(engine) as service:
            blocker = asyncio.create_task(service.embed(embed((5,))))
            await until(engine.entered.is_set)
            bad = asyncio.create_task(service.embed(embed((6,), (BAD,), (BAD,))))
            good = asyncio.create_task(service.embed(embed((7,))))
            await until(lambda: service.stats().num_queued_items == 4)
            engine.gate.set()
            error = await error_of(bad)
            assert (error.kind, error.code) == (ErrorKind.BACKEND, "non_finite_output")
            assert error.item == 1
            assert "non-finite" in error.message
            np.testing.assert_array_equal((await good).rows[0], pooled((7,)))
            await blocker

    asyncio.run(scenario())


def test_the_engine_may_fail_and_the_next_request_works() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.failing_ids = {BAD}
        async with serving(engine) as service:
            error = await error_of(service.embed(embed((BAD,), is_list=False)))
            assert (error.code, error.item) == ("engine_error", None)
            await service.embed(embed((5,)))
            assert service.state is ServiceState.READY

    asyncio.run(scenario())


def test_eight_failed_batches_take_the_service_down() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        engine.failing_ids = {BAD}
        async with serving(engine) as service:
            for _ in range(8):
                await error_of(service.embed(embed((BAD,))))
            assert service.state is ServiceState.FAILED
            error = await error_of(service.embed(embed((5,))))
            assert (error.kind, error.code) == (ErrorKind.UNHEALTHY, "not_ready")
            assert error.retry_after_s is not None

    asyncio.run(scenario())


def test_a_dead_engine_thread_ends_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.excepthook", lambda args: None)

    def break_down() -> None:
        raise KeyError("a bug")

    async def scenario() -> None:
        engine = FakeEngine(max_sequences=2)
        engine.gate.clear()
        engine.poison = break_down
        async with serving(engine) as service:
            calls = [asyncio.create_task(service.embed(embed((5,), (6,), (7,)))) for _ in range(3)]
            await until(engine.entered.is_set)
            engine.gate.set()
            for call in calls:
                assert (await error_of(call)).kind is ErrorKind.UNHEALTHY
            assert service.state is ServiceState.FAILED

    asyncio.run(scenario())


def test_drain_finishes_what_was_admitted() -> None:
    async def scenario() -> None:
        engine = FakeEngine(max_sequences=1)
        engine.gate.clear()
        async with serving(engine) as service:
            states = [service.state]
            calls = [asyncio.create_task(service.embed(embed((5,), (6,)))) for _ in range(3)]
            await until(lambda: service.stats().num_requests == 3)
            service.begin_drain()
            states.append(service.state)
            assert states == [ServiceState.READY, ServiceState.DRAINING]
            assert (await error_of(service.embed(embed((7,))))).kind is ErrorKind.UNHEALTHY
            assert not await service.wait_drained(0.0)
            assert not await service.wait_drained(0.02)
            engine.gate.set()
            assert await service.wait_drained(DEADLINE_S)
            assert [len((await call).rows) for call in calls] == [2, 2, 2]
        assert len(engine.batches) == 6

    asyncio.run(scenario())


def test_an_idle_service_is_drained_at_once() -> None:
    async def scenario() -> None:
        async with serving(FakeEngine()) as service:
            service.begin_drain()
            assert await service.wait_drained(0.0)

    asyncio.run(scenario())


def test_abort_ends_queued_and_running_requests() -> None:
    async def scenario() -> None:
        engine = FakeEngine(max_sequences=1)
        engine.gate.clear()
        async with serving(engine) as service:
            calls = [asyncio.create_task(service.embed(embed((5,), (6,)))) for _ in range(3)]
            await until(lambda: service.stats().num_queued_items == 5)
            service.begin_drain()
            service.abort_pending()
            for call in calls:
                assert (await error_of(call)).kind is ErrorKind.UNHEALTHY
            assert_empty(service)
            assert await service.wait_drained(0.0)
        assert len(engine.batches) == 1

    asyncio.run(scenario())


def test_requests_still_being_tokenised_end_too() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        async with serving(engine, ServiceSettings(max_queue_tokens=10**6)) as service:
            call = asyncio.create_task(service.embed(embed(*["w5 w6 " * 30] * 1000)))
            await until(lambda: service.stats().num_requests == 1)
            service.begin_drain()
            service.abort_pending()
            assert (await error_of(call)).kind is ErrorKind.UNHEALTHY
        assert engine.batches == []

    asyncio.run(scenario())


def test_a_request_cancelled_after_it_failed_is_not_reported_as_lost() -> None:
    async def scenario() -> list[object]:
        lost: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
        engine = FakeEngine()
        engine.gate.clear()
        async with serving(engine) as service:
            call = asyncio.create_task(service.embed(embed((5,))))
            await until(engine.entered.is_set)
            service.abort_pending()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            del call
        gc.collect()
        return lost

    assert asyncio.run(scenario()) == []


def test_a_service_that_never_started_is_loading_and_closes_its_engine() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        service = InferenceService(fake_model(engine), ServiceSettings(), SilentObserver())
        assert service.state is ServiceState.LOADING
        assert (await error_of(service.embed(embed("w5")))).kind is ErrorKind.UNHEALTHY
        assert service.close()
        assert engine.is_closed

    asyncio.run(scenario())
