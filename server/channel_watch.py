"""Keeps one model at what its channel points to. Knows nothing of how a model is replaced.

A thread reads what the child that follows the channel says; decisions are made on the event loop.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.server.hot_swap import HotSwap
from infinity_v3.server.pulled import PulledArtifact
from infinity_v3.server.registry_child import (
    FollowBeat,
    FollowNews,
    FollowTrouble,
    RegistryChild,
)

_log = logging.getLogger("infinity_v3")
_FIRST_RESTART_S = 1.0
_LAST_RESTART_S = 60.0
_FIRST_WORD_S = 30.0
"""A child that was started has said something by then."""
_Given = TypeVar("_Given")


class ChannelWatch:
    """Follows one channel from `start` to `stop`, which belong to the event loop."""

    def __init__(self, child: RegistryChild, reference: Reference, swap: HotSwap) -> None:
        self._child = child
        self._reference = reference
        self._swap = swap
        self._announced: PulledArtifact | None = None
        self._has_news = asyncio.Event()
        self._is_stopped = threading.Event()
        self._restart_s = _FIRST_RESTART_S
        self._trouble: str | None = None
        self._is_silent = False
        self._alarm: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._swap_for_ever())
        threading.Thread(target=self._follow, name="infinity-watch", daemon=True).start()

    def stop(self) -> None:
        """Swap no more; the child ends with whoever started it."""
        self._is_stopped.set()
        self._listen_for(None)
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Close what a swap has left open."""
        self._swap.close()

    def _follow(self) -> None:
        """Keep a child running; one that dies is replaced after a while."""
        while not self._is_stopped.is_set():
            try:
                self._call(self._listen_for, _FIRST_WORD_S)
                self._child.follow(self._reference, self._post)
            except InfinityError as error:
                if self._is_stopped.is_set():
                    return
                self._post(FollowTrouble(sentence=str(error), is_refusal=False))
                self._call(self._listen_for, None)
            self._is_stopped.wait(self._restart_s)
            self._restart_s = min(self._restart_s * 2, _LAST_RESTART_S)

    def _post(self, news: FollowNews) -> None:
        self._call(self._receive, news)

    def _call(self, act: Callable[[_Given], None], given: _Given) -> None:
        assert self._loop is not None, "news came before start(); this is a bug"
        with suppress(RuntimeError):  # the loop is closed, nobody wants to know
            self._loop.call_soon_threadsafe(act, given)

    def _receive(self, news: FollowNews) -> None:
        if self._is_stopped.is_set():
            return
        if self._is_silent:
            self._is_silent = False
            _log.info("channel %s: the registry is read again", self._reference.text)
            self._swap.show_trouble(self._trouble)
        if isinstance(news, FollowBeat):
            self._listen_for(news.next_within_s)
        elif isinstance(news, PulledArtifact):
            self._restart_s = _FIRST_RESTART_S
            if self._trouble is not None:
                _log.info("channel %s: can be followed again", self._reference.text)
            self._show_trouble(None)
            self._announced = news
            self._has_news.set()
        elif news.is_refusal:
            self._swap.refuse(news.sentence)
            self._show_trouble(news.sentence)
        else:
            _log.warning("channel %s: %s; trying again", self._reference.text, news.sentence)
            self._show_trouble(news.sentence)

    def _show_trouble(self, sentence: str | None) -> None:
        self._trouble = sentence
        self._swap.show_trouble(sentence)

    def _listen_for(self, seconds: float | None) -> None:
        """Expect a word within a time, and no other one before; None = none is expected."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if seconds is not None and not self._is_stopped.is_set():
            assert self._loop is not None, "nobody listens before start(); this is a bug"
            self._alarm = self._loop.call_later(seconds, self._note_silence, seconds)

    def _note_silence(self, seconds: float) -> None:
        self._is_silent = True
        sentence = (
            f"the registry was not read for {seconds:g} s: it hangs, or the process that follows "
            "the channel is stopped"
        )
        _log.warning("channel %s: %s", self._reference.text, sentence)
        self._swap.show_trouble(sentence)

    async def _swap_for_ever(self) -> None:
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            wanted, self._announced = self._announced, None
            if wanted is None:
                continue
            try:
                await self._swap.to(wanted, partial(self._is_outdated, wanted))
            except Exception:
                # The last line of defence: the next move must find somebody who listens.
                _log.exception("channel %s: a swap failed: this is a bug", self._reference.text)

    def _is_outdated(self, wanted: PulledArtifact) -> bool:
        return self._announced is not None and self._announced.id != wanted.id
