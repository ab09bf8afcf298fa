"""Many clients, mixed settings, cancellations, failures: every request ends exactly once."""

import asyncio
import gc
import random
import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from fake_engine import FakeEngine, pooled
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.requests import EmbedRequest, Schedule, TextOptions, TruncationSide
from infinity_v3.runtime.service import InferenceService
from infinity_v3.runtime.settings import ServiceSettings
from tiny_models import END, MAX_INPUT_TOKENS, START, fake_model

BAD = 999
NUM_CLIENTS = 32
REQUESTS_PER_CLIENT = 40


class CountingObserver:
    """Counts what the runtime reports."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def batch_formed(self, *, num_items: int, num_tokens: int) -> None:
        self.counts["formed_items"] += num_items

    def batch_finished(self, *, engine_s: float, num_tokens: int, num_folded_tokens: int) -> None:
        self.counts["batches"] += 1

    def item_finished(self, *, num_tokens: int) -> None:
        self.counts["finished_items"] += 1


def expected_ids(ids: tuple[int, ...], options: TextOptions) -> tuple[int, ...]:
    room = (options.max_tokens or MAX_INPUT_TOKENS) - 2
    is_right = options.truncation_side is TruncationSide.RIGHT
    return (START, *(ids[:room] if is_right else ids[-room:]), END)


def random_request(
    generator: random.Random, *, may_fail: bool
) -> tuple[EmbedRequest, list[tuple[int, ...]]]:
    """A request and the ids that the model must be fed."""
    options = TextOptions(
        truncation_side=generator.choice(list(TruncationSide)),
        max_tokens=generator.choice([None, 3, 7, MAX_INPUT_TOKENS]),
    )
    items: list[str | tuple[int, ...]] = []
    fed: list[tuple[int, ...]] = []
    for _ in range(generator.choice([1, 1, 2, 5, 40])):
        ids = tuple(generator.choices(range(3, 900), k=generator.randint(1, 90)))
        if may_fail and generator.random() < 0.02:
            ids = (BAD,)
        items.append(" ".join(f"w{token_id}" for token_id in ids))
        fed.append(expected_ids(ids, options))
    schedule = Schedule(
        is_priority=generator.random() < 0.3,
        deadline_s=time.monotonic() + generator.choice([0.001, 5.0])
        if generator.random() < 0.1
        else None,
    )
    request = EmbedRequest(
        items=tuple(items), is_list=True, options=options, schedule=schedule, normalize=False
    )
    return request, fed


async def client(
    service: InferenceService, seed: int, endings: Counter[str], *, may_fail: bool
) -> None:
    generator = random.Random(seed)
    for _ in range(REQUESTS_PER_CLIENT):
        request, fed = random_request(generator, may_fail=may_fail)
        task = asyncio.create_task(service.embed(request))
        if generator.random() < 0.15:
            await asyncio.sleep(generator.random() * 0.003)
            task.cancel()
        try:
            result = await task
        except asyncio.CancelledError:
            endings["cancelled"] += 1
        except InferenceError as error:
            endings[error.code] += 1
        else:
            endings["ok"] += 1
            assert result.timing.queue_s >= 0.0
            assert result.timing.inference_s > 0.0
            for row, ids in zip(result.rows, fed, strict=True):
                np.testing.assert_array_equal(row, pooled(ids))


@pytest.mark.parametrize("may_fail", [False, True])
def test_every_request_ends_once_and_nothing_is_left(may_fail: bool) -> None:
    async def scenario() -> None:
        engine = FakeEngine(max_tokens=512)
        engine.failing_ids = {BAD} if may_fail else set()
        observer = CountingObserver()
        endings: Counter[str] = Counter()
        service = InferenceService(fake_model(engine), ServiceSettings(), observer)
        service.start()
        await asyncio.gather(
            *(client(service, seed, endings, may_fail=may_fail) for seed in range(NUM_CLIENTS))
        )
        service.begin_drain()
        assert await service.wait_drained(10.0)
        while service.stats().num_pending_items:  # items of cancelled requests in the last batch
            await asyncio.sleep(0.001)
        stats = service.stats()
        assert (stats.num_requests, stats.num_queued_items, stats.num_pending_tokens) == (0, 0, 0)
        assert service.close()
        assert sum(endings.values()) == NUM_CLIENTS * REQUESTS_PER_CLIENT
        allowed = {"ok", "cancelled", "request_timeout"} | ({"engine_error"} if may_fail else set())
        assert set(endings) <= allowed, endings
        assert endings["ok"] > NUM_CLIENTS * REQUESTS_PER_CLIENT // 3
        assert (endings["engine_error"] > 0) == may_fail
        if not may_fail:
            assert observer.counts["formed_items"] == observer.counts["finished_items"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        (ServiceSettings(max_concurrent_requests=5), "--max-concurrent-requests"),
        (ServiceSettings(max_queue_tokens=400), "--max-queue-tokens"),
    ],
)
def test_overload_refuses_whole_requests_and_the_next_one_works(
    settings: ServiceSettings, flag: str
) -> None:
    async def scenario() -> None:
        engine = FakeEngine(max_tokens=512)
        engine.poison = lambda: time.sleep(0.001)
        service = InferenceService(fake_model(engine), settings, CountingObserver())
        service.start()

        async def ask(token_id: int) -> InferenceError | None:
            request = EmbedRequest(items=((token_id,) * 30,) * 4, is_list=True)
            try:
                await service.embed(request)
            except InferenceError as error:
                return error
            return None

        endings = await asyncio.gather(*(ask(3 + index) for index in range(200)))
        refusals = [error for error in endings if error is not None]
        admitted = len(endings) - len(refusals)
        assert refusals
        for error in refusals:
            assert error.kind is ErrorKind.OVERLOADED
            assert flag in error.message
            assert error.retry_after_s in range(1, 61)
        assert await ask(900) is None
        assert service.stats().num_pending_tokens == 0
        assert service.close()
        fed = Counter(ids[0] for batch in engine.batches for ids in batch)
        assert set(fed.values()) == {4}, "a refused request was computed in part"
        assert len(fed) == admitted + 1

    asyncio.run(scenario())


def test_memory_is_given_back() -> None:
    async def scenario() -> None:
        engine = FakeEngine(max_tokens=512)
        service = InferenceService(fake_model(engine), ServiceSettings(), CountingObserver())
        service.start()
        request = EmbedRequest(items=((5, 6, 7),) * 4, is_list=True)

        async def burst(count: int) -> None:
            for _ in range(count):
                tasks = [asyncio.create_task(service.embed(request)) for _ in range(8)]
                await asyncio.sleep(0)
                tasks[0].cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            engine.batches.clear()
            engine.outputs.clear()
            gc.collect()

        await burst(50)
        tracemalloc.start()
        try:
            await burst(20)
            before, _ = tracemalloc.get_traced_memory()
            await burst(200)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 100_000, f"{after - before} bytes kept after 1600 requests"
        assert service.close()

    asyncio.run(scenario())
