"""Starts the servers of the client kit. Knows which artifacts they serve, and no client."""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from client_kit import KEY, NAME, SERVERS
from compiled import CompiledArtifacts
from decision_artifact import LAYA, laya_artifact
from matrix import Cell, cell_artifact
from server_process import ServerProcess
from tiny_artifacts import CAMEMBERT, Recipe, make_artifact
from tiny_laya import LayaRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one server is started; without a tiny artifact it serves all-MiniLM-L6-v2."""

    tiny: Cell | Recipe | LayaRecipe | None = None
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


_RERANKER = Cell(family="bert", task="reranker")
_WITH_KEY = {"INFINITY_API_KEY": KEY}
PLANS: Mapping[str, Plan] = {
    "embedding": Plan(),
    "keyed": Plan(env=_WITH_KEY),
    "similarity": Plan(env={"TASK": "sentence-similarity"}),
    "single": Plan(options=("--max-concurrent-requests", "1")),
    "prompts": Plan(tiny=CAMEMBERT),
    "reranker": Plan(tiny=_RERANKER),
    "keyed_reranker": Plan(tiny=_RERANKER, env=_WITH_KEY),
    "classifier": Plan(tiny=Cell(family="distilbert", task="classifier")),
    "token_classifier": Plan(tiny=Cell(family="bert", task="token_classifier")),
    "sparse": Plan(tiny=Cell(family="bert", task="sparse")),
    "late_interaction": Plan(tiny=Cell(family="bert", task="late_interaction")),
    "decision": Plan(tiny=LAYA),
    "keyed_decision": Plan(tiny=LAYA, env=_WITH_KEY),
}
assert PLANS.keys() == SERVERS.keys()


class RunningServers:
    """Starts a server when its URL is first asked for; as a context manager it ends them all.

    Each serves its artifact as `./all-MiniLM-L6-v2`: a client may compare that name with its own.
    """

    def __init__(self, minilm: Path, compiled: CompiledArtifacts) -> None:
        self._minilm = minilm
        self._compiled = compiled
        self._urls: dict[str, str] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "RunningServers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __call__(self, name: str) -> str:
        if name not in self._urls:
            self._urls[name] = self._start(PLANS[name])
        return self._urls[name]

    def _start(self, plan: Plan) -> str:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / NAME).symlink_to(self._artifact(plan))
        server = ServerProcess(
            f"./{NAME}",
            "--dtype",
            "float32",
            "--served-model-name",
            NAME,
            *plan.options,
            env=plan.env,
            launcher=("env", f"--chdir={folder}"),
        )
        return self._stack.enter_context(server).base_url

    def _artifact(self, plan: Plan) -> Path:
        if plan.tiny is None:
            return self._minilm
        if isinstance(plan.tiny, LayaRecipe):
            return laya_artifact(self._compiled)
        if isinstance(plan.tiny, Cell):
            return cell_artifact(plan.tiny, self._compiled)
        return make_artifact(self._compiled, plan.tiny).artifact
