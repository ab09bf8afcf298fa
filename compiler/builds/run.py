"""A whole build: plan every model, run what is to be run, and know how each ended."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.artifacts.registry.open_registry import open_registry
from infinity_v3.artifacts.registry.signing import Signer
from infinity_v3.compiler.builds.board import choose_board
from infinity_v3.compiler.builds.build_key import tool_state
from infinity_v3.compiler.builds.commands import child_environment
from infinity_v3.compiler.builds.entry import BuildFile, ModelEntry
from infinity_v3.compiler.builds.job import JobSettings, left_out, model_job, unplanned
from infinity_v3.compiler.builds.outcome import Outcome, Result
from infinity_v3.compiler.builds.plan import ModelPlan, Planner
from infinity_v3.compiler.builds.pool import JobPool
from infinity_v3.compiler.progress import choose_progress

NOT_BEGUN = "not begun, or cut short: the run ended before"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a build is run.

    Attributes:
        is_fail_fast: stop at the first model that fails.
        is_silent: show nothing on stderr.
        sign_key: private key for what is pushed; its child processes read it again.
        signer: the same key, read; None = nothing is signed.
    """

    is_fail_fast: bool
    is_silent: bool
    sign_key: Path | None = None
    signer: Signer | None = None


class BuildRun:
    """One run over some entries of a build file.

    `outcomes` may be asked at any time, also when `run` was left by a signal's exception; children
    are ended by then, and artifacts are whole or not there.
    """

    def __init__(
        self, file: BuildFile, entries: Sequence[ModelEntry], settings: RunSettings
    ) -> None:
        self._file = file
        self._entries = entries
        self._settings = settings
        self._plans: dict[int, ModelPlan] = {}
        self._done: dict[int, Outcome] = {}

    def run(self) -> None:
        """Plan all models, then run what has to be run.

        Raises:
            UsageError: the registry's location is none.
            RefusedError: there is no registry.
            RunFailedError: the registry cannot be read, or no process can be started.
        """
        self._plan()
        if not (self._settings.is_fail_fast and self._done):
            self._run_plans()

    def outcomes(self) -> tuple[Outcome, ...]:
        """How each entry ended so far, in the order of the file."""
        return tuple(self._outcome(number) for number in range(len(self._entries)))

    def _plan(self) -> None:
        location = self._file.registry
        planner = Planner(
            out=self._file.out,
            registry=None if location is None else open_registry(location),
            tool=tool_state(),
            signer=self._settings.signer,
            progress=choose_progress(
                sys.stderr,
                is_silent=self._settings.is_silent,
                terminal=os.environ.get("TERM", ""),
            ),
        )
        for number, entry in enumerate(self._entries):
            try:
                self._plans[number] = planner.plan(entry)
            except InfinityError as error:
                self._done[number] = unplanned(entry, error)
                if self._settings.is_fail_fast:
                    return

    def _run_plans(self) -> None:
        numbers = list(self._plans)
        plans = [self._plans[number] for number in numbers]
        settings = JobSettings(
            registry=self._file.registry,
            threads=self._threads(plans),
            sign_key=self._settings.sign_key,
        )
        board = choose_board(
            sys.stderr,
            [plan.title for plan in plans],
            is_silent=self._settings.is_silent,
            terminal=os.environ.get("TERM", ""),
        )
        pool = JobPool(
            [model_job(plan, settings) for plan in plans],
            limit=self._file.jobs,
            environment=child_environment(os.environ),
            watcher=board,
        )
        try:
            pool.run(stops_after=self._stops_after)
        finally:
            board.close()
            self._done.update({numbers[job]: found for job, found in pool.results.items()})

    def _stops_after(self, outcome: Outcome) -> bool:
        return self._settings.is_fail_fast and outcome.is_bad

    def _threads(self, plans: Sequence[ModelPlan]) -> int:
        """The CPUs of this process, shared out among the compiles of one moment."""
        num_compiles = sum(_is_compiled(plan) for plan in plans)
        num_at_a_time = max(1, min(self._file.jobs, num_compiles))
        return max(1, len(os.sched_getaffinity(0)) // num_at_a_time)

    def _outcome(self, number: int) -> Outcome:
        if number in self._done:
            return self._done[number]
        if number in self._plans:
            return left_out(self._plans[number], NOT_BEGUN)
        entry = self._entries[number]
        return Outcome(
            name=entry.name, version=entry.version, result=Result.LEFT_OUT, message=NOT_BEGUN
        )


def _is_compiled(plan: ModelPlan) -> bool:
    return plan.published is None and plan.elsewhere is None and not plan.is_there
