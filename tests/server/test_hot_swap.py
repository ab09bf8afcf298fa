"""Swaps of one model in a server whose services have no model behind them."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fake_artifact import make_target, write_fake_artifact
from fake_engine import FakeEngine
from fake_service import FakeService, model_info
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.target import Selection
from infinity_v3.server.channel_watch import ChannelWatch
from infinity_v3.server.hot_swap import HotSwap
from infinity_v3.server.model_config import ModelConfig
from infinity_v3.server.pulled import ArtifactUse, PulledArtifact
from infinity_v3.server.registry_child import (
    FollowBeat,
    FollowNews,
    FollowTrouble,
    RegistryChild,
)
from infinity_v3.server.registry_origin import RegistryOrigin
from infinity_v3.server.served import ModelTable, ServedModel
from infinity_v3.server.startup import StartedModel
from loopback import Client, running
from scrape import counts, gauges
from tiny_models import fake_model

NAME = "tiny"


class TrackedService(FakeService):
    """Knows whether it was retired, which must not happen under a request."""

    num_ends = 0

    async def retire(self) -> bool:
        assert self.admission.num_requests == 0, "retired under a request"
        return self.close()

    def close(self) -> bool:
        self.num_ends += 1
        return True


@dataclass(kw_only=True)
class Stage:
    """A server of one model that was pulled, and what can take over.

    Attributes:
        failure: raised in place of the next load.
        may_load: loads wait for it.
        engines: of what was loaded, by artifact id.
    """

    client: Client
    swap: HotSwap = field(init=False)
    cache: Path
    failure: Exception | None = None
    may_load: threading.Event = field(default_factory=threading.Event)
    engines: dict[str, FakeEngine] = field(default_factory=dict)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    def __post_init__(self) -> None:
        self.may_load.set()
        first = self.pulled(1)
        started = self._started(first)
        context = self.client.context
        (model,) = context.models.all()
        origin = RegistryOrigin.of(first, f"{NAME}:prod", is_watched=True)
        self._services = {first.id: TrackedService()}
        served = replace(model, service=self._services[first.id], origin=origin)
        context.models = ModelTable([served])
        self.swap = HotSwap(context, started, self._load, self._serve)

    def pulled(self, number: int) -> PulledArtifact:
        """An artifact in the cache; the number is in its id and the number of its event."""
        digits = f"{number:064x}"
        path = self.cache / "pulled" / digits
        if not path.exists():
            write_fake_artifact(path)
        return PulledArtifact(
            path=path,
            id=f"sha256:{digits}",
            name=NAME,
            version=str(number),
            channel="prod",
            event=number,
        )

    @property
    def model(self) -> ServedModel:
        return self.client.context.models.find(NAME)

    def service(self, number: int) -> TrackedService:
        return self._services[self.pulled(number).id]

    def run(self, work: "Coroutine[Any, Any, None]") -> "Future[None]":
        return asyncio.run_coroutine_threadsafe(work, self.client.loop)

    def to(self, number: int, *, is_outdated: bool = False) -> "Future[None]":
        return self.run(self.swap.to(self.pulled(number), lambda: is_outdated))

    def swapped(self) -> dict[str, float]:
        found = counts(self.client.get("/metrics").body.decode())
        prefix = f'infinity_channel_swaps_total{{model="{NAME}",result="'
        return {
            name.removeprefix(prefix).removesuffix('"}'): value
            for name, value in found.items()
            if name.startswith(prefix)
        }

    def is_behind(self) -> float:
        found = gauges(self.client.get("/metrics").body.decode())
        return found[f'infinity_channel_behind{{model="{NAME}"}}']

    def _load(self, current: StartedModel, pulled: PulledArtifact) -> StartedModel:
        assert self.may_load.wait(10)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return self._started(pulled)

    def _started(self, pulled: PulledArtifact) -> StartedModel:
        use = ArtifactUse(pulled)
        assert use.begin()
        engine = self.engines[pulled.id] = FakeEngine()
        loaded = fake_model(engine)
        return StartedModel(
            name=NAME,
            config=ModelConfig(model_id=f"{NAME}:prod", watch_channel=True),
            loaded=replace(loaded, info=replace(loaded.info, artifact_id=pulled.id)),
            selection=Selection(target=make_target(), reasons=("the only one",)),
            seconds={"load": 0.5},
            use=use,
        )

    def _serve(self, started: StartedModel) -> ServedModel:
        service = self._services.setdefault(started.loaded.info.artifact_id, TrackedService())
        info = replace(model_info(NAME), artifact_id=started.loaded.info.artifact_id)
        return replace(self.model, service=service, info=info)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with running() as client:
        stage = Stage(client=client, cache=tmp_path)
        yield stage
        client.call(stage.swap.close)
        stage.pool.shutdown()


def embed(stage: Stage) -> int:
    return stage.client.post("/embed", {"inputs": ["a", "b c"]}).status


def test_what_was_accepted_is_answered_by_the_old_one(stage: Stage) -> None:
    old = stage.service(1)
    release = stage.client.hold(old)
    waiting = [stage.pool.submit(embed, stage) for _ in range(3)]
    stage.client.wait_until(lambda: old.admission.num_requests == 3)
    swap = stage.to(2)
    stage.client.wait_until(lambda: stage.model.info.artifact_id == stage.pulled(2).id)
    assert embed(stage) == 200
    assert stage.service(2).num_computed > 0
    assert not swap.done()
    assert old.num_ends == 0
    assert stage.client.get("/info").json["registry"]["event"] == 2
    release()
    assert [one.result(10) for one in waiting] == [200] * 3
    swap.result(10)
    assert old.num_ends == 1
    assert stage.swapped() == {"switched": 1, "failed": 0, "superseded": 0}


def test_the_old_one_answers_while_the_new_one_loads(stage: Stage) -> None:
    stage.may_load.clear()
    swap = stage.to(2)
    stage.client.wait_until(lambda: stage.is_behind() == 1)
    shown = stage.client.get("/info").json
    assert shown["artifact"]["id"] == model_info(NAME).artifact_id
    assert shown["registry"]["next"] == {
        "id": stage.pulled(2).id,
        "version": "2",
        "event": 2,
        "state": "loading",
        "reason": None,
    }
    assert stage.client.get("/ready").status == 200
    assert embed(stage) == 200
    stage.may_load.set()
    swap.result(10)
    assert stage.client.get("/info").json["registry"]["next"] is None
    assert stage.is_behind() == 0


def test_later_requests_do_not_keep_the_old_one(stage: Stage) -> None:
    """Also under a load that never pauses the old one is closed."""
    release = stage.client.hold(stage.service(1))
    waiting = stage.pool.submit(embed, stage)
    stage.client.wait_until(lambda: stage.service(1).admission.num_requests == 1)
    swap = stage.to(2)
    stage.client.wait_until(lambda: stage.model.info.artifact_id == stage.pulled(2).id)
    release_later = stage.client.hold(stage.service(2))
    later = stage.pool.submit(embed, stage)
    stage.client.wait_until(lambda: stage.service(2).admission.num_requests == 1)
    release()
    assert waiting.result(10) == 200
    swap.result(10)
    assert stage.service(1).num_ends == 1
    assert not later.done()
    release_later()
    assert later.result(10) == 200


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (RefusedError("no target fits"), "no target fits"),
        (ValueError("a bug"), "internal error, see the log"),
    ],
)
def test_what_cannot_be_loaded_changes_nothing(
    stage: Stage, failure: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage.failure = failure
    with caplog.at_level(logging.INFO, "infinity_v3"):
        stage.to(2).result(10)
    assert embed(stage) == 200
    assert stage.model.service is stage.service(1)
    shown = stage.client.get("/info").json["registry"]
    assert shown["event"] == 1
    assert shown["next"] == {
        "id": stage.pulled(2).id,
        "version": "2",
        "event": 2,
        "state": "failed",
        "reason": reason,
    }
    (model,) = stage.client.get("/status.json").json["models"]
    assert model["registry"]["next"]["reason"] == reason
    assert stage.swapped() == {"switched": 0, "failed": 1, "superseded": 0}
    assert stage.is_behind() == 1
    assert f"cannot be served: {reason}; the artifact before is served on" in caplog.text
    stage.to(3).result(10)
    assert stage.client.get("/info").json["registry"]["next"] is None
    assert stage.is_behind() == 0


def test_only_the_newest_is_served(stage: Stage) -> None:
    stage.to(2, is_outdated=True).result(10)
    assert stage.model.service is stage.service(1)
    assert stage.engines[stage.pulled(2).id].is_closed
    assert stage.swapped() == {"switched": 0, "failed": 0, "superseded": 1}


def test_a_move_to_what_is_served_changes_the_event_only(stage: Stage) -> None:
    again = replace(stage.pulled(1), version="1.0.1", event=9)
    stage.run(stage.swap.to(again, lambda: False)).result(10)
    shown = stage.client.get("/info").json["registry"]
    assert (shown["version"], shown["event"]) == ("1.0.1", 9)
    assert stage.model.service is stage.service(1)
    assert sum(stage.swapped().values()) == 0


def test_the_cache_keeps_what_is_served_and_what_was_before(stage: Stage) -> None:
    for number in (2, 3, 4):
        stage.to(number).result(10)
    stage.failure = RefusedError("no")
    stage.to(5).result(10)
    kept = {path.name for path in (stage.cache / "pulled").iterdir() if path.is_dir()}
    assert kept == {f"{number:064x}" for number in (3, 4)}


def test_a_server_that_ends_in_a_swap_closes_both(stage: Stage) -> None:
    release = stage.client.hold(stage.service(1))
    waiting = stage.pool.submit(embed, stage)
    stage.client.wait_until(lambda: stage.service(1).admission.num_requests == 1)
    swap = stage.to(2)
    stage.client.wait_until(lambda: stage.model.info.artifact_id == stage.pulled(2).id)
    swap.cancel()
    release()
    assert waiting.result(10) == 200
    assert stage.service(1).num_ends == 0
    stage.client.call(stage.swap.close)
    assert stage.service(1).num_ends == 1


class ScriptedChild(RegistryChild):
    """Tells news when a test says so; `end` makes it die."""

    def __init__(self) -> None:
        self.tell: Callable[[FollowNews], None] | None = None
        self.num_starts = 0
        self._has_ended = Future[None]()

    def follow(self, reference: Reference, on_news: Callable[[FollowNews], None]) -> None:
        self.num_starts += 1
        self.tell, self._has_ended = on_news, Future()
        self._has_ended.result(20)

    def end(self, error: Exception) -> None:
        self._has_ended.set_exception(error)


def watching(stage: Stage, child: ScriptedChild) -> ChannelWatch:
    """Have a child followed, and wait until it was started."""
    watches: list[ChannelWatch] = []

    def start() -> None:
        watches.append(ChannelWatch(child, Reference(name=NAME, channel="prod"), stage.swap))
        watches[0].start()

    stage.client.call(start)
    stage.client.wait_until(lambda: child.tell is not None)
    return watches[0]


def test_a_registry_that_hangs_is_seen(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    child = ScriptedChild()
    watch = watching(stage, child)
    assert child.tell is not None

    def error() -> Any:  # noqa: ANN401  # a document's value
        return stage.client.get("/info").json["registry"]["error"]

    with caplog.at_level(logging.INFO, "infinity_v3"):
        child.tell(FollowTrouble(sentence="not signed", is_refusal=True))
        child.tell(FollowBeat(next_within_s=0.02))
        stage.client.wait_until(lambda: "was not read for 0.02 s" in (error() or ""))
        child.tell(FollowBeat(next_within_s=1000.0))
        stage.client.wait_until(lambda: error() == "not signed")
        child.tell(stage.pulled(1))
        stage.client.wait_until(lambda: error() is None)
        assert stage.is_behind() == 0
        child.tell(FollowBeat(next_within_s=0.02))
        stage.client.wait_until(lambda: stage.is_behind() == 1)
        # What takes over meanwhile says nothing of the registry.
        stage.to(2).result(10)
        assert (stage.is_behind(), stage.swapped()["failed"]) == (1, 1)
        child.tell(FollowBeat(next_within_s=1000.0))
        stage.client.wait_until(lambda: stage.is_behind() == 0)
    assert caplog.text.count("was not read for") == 2
    assert caplog.text.count("the registry is read again") == 2
    assert caplog.text.count("can be followed again") == 1
    stage.client.call(watch.stop)
    child.end(RefusedError("stopped"))


def test_a_child_that_says_nothing_at_all_is_seen(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infinity_v3.server.channel_watch._FIRST_WORD_S", 0.02)
    child = ScriptedChild()
    watch = watching(stage, child)
    stage.client.wait_until(lambda: stage.is_behind() == 1)
    stage.client.call(watch.stop)
    child.end(RefusedError("stopped"))


def test_what_a_channel_says_is_done(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infinity_v3.server.channel_watch._FIRST_RESTART_S", 0.01)
    child = ScriptedChild()

    def tell(news: FollowNews) -> None:
        assert child.tell is not None
        child.tell(news)

    def registry() -> Any:  # noqa: ANN401  # a document
        return stage.client.get("/info").json["registry"]

    watch = watching(stage, child)
    tell(stage.pulled(2))
    stage.client.wait_until(lambda: registry()["event"] == 2)
    tell(FollowTrouble(sentence="no network", is_refusal=False))
    stage.client.wait_until(lambda: registry()["error"] == "no network")
    assert (stage.swapped()["failed"], stage.is_behind()) == (0, 1)
    tell(FollowTrouble(sentence="not signed", is_refusal=True))
    stage.client.wait_until(lambda: registry()["error"] == "not signed")
    assert stage.swapped()["failed"] == 1
    child.end(RefusedError("the child has died"))
    stage.client.wait_until(lambda: child.num_starts == 2)
    assert registry()["error"] == "the child has died"
    tell(stage.pulled(3))
    stage.client.wait_until(lambda: registry()["event"] == 3)
    assert registry()["error"] is None
    stage.client.call(watch.stop)
    tell(stage.pulled(4))
    child.end(RefusedError("stopped"))
    assert registry()["event"] == 3
