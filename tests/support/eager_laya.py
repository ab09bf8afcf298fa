"""A Laya checkpoint through the product's own parts, its packed graph run eagerly.

What is left out is the compiled code alone. Knows nothing of oracles.
"""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infinity_v3.artifacts.manifest import (
    Backend,
    Device,
    Graph,
    Heads,
    Kind,
    Limits,
    Precision,
    TensorSpec,
)
from infinity_v3.compiler.engines import load_packed
from infinity_v3.compiler.packed import PackedModel, install_packed_attention
from infinity_v3.compiler.pipeline import CompilePlan, plan_compile
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.runtime.batch import Batch, pack
from infinity_v3.runtime.capabilities import capabilities_of
from infinity_v3.runtime.decisions.answers import probabilities_of
from infinity_v3.runtime.decisions.protocol import EncodedDecisions, open_format
from infinity_v3.runtime.decisions.question import DecideRequest
from infinity_v3.runtime.engine import EngineOutput
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.model_info import ModelInfo
from infinity_v3.runtime.postprocess import read_rows
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.wanted import always
from infinity_v3.runtime.work import Readout, RowForm
from infinity_v3.server.decision_endpoint import read_body
from infinity_v3.server.exact_json import parse_exact
from infinity_v3.server.questions import parse_questions, parse_state

_GATE_S = 20.0
_READOUT = Readout(output="option_logits", form=RowForm.READOUTS)


class EagerEngine:
    """Runs a packed model as it is; see runtime.engine.Engine.

    Attributes:
        batch_sizes: sequences of every call.
        gate: calls wait here; open unless a test closes it.
    """

    def __init__(self, model: PackedModel) -> None:
        self._model = model
        self.graph = Graph(
            inputs=tuple(
                TensorSpec(name=name, dtype="int64", dims=("T",)) for name in model.input_names
            ),
            outputs=(TensorSpec(name=_READOUT.output, dtype="float32", dims=("M", 1)),),
        )
        self.limits = Limits(max_tokens=16384, max_sequences=4096)
        self.batch_sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def run(
        self, batch: Batch, outputs: frozenset[str], *, num_threads: int | None = None
    ) -> EngineOutput:
        assert self.gate.wait(_GATE_S), "the gate stayed closed"
        inputs = [torch.from_numpy(getattr(batch, name)) for name in self._model.input_names]
        with torch.inference_mode():
            (logits,) = self._model(*inputs)
        self.batch_sizes.append(batch.num_sequences)
        return EngineOutput(tensors={_READOUT.output: logits.numpy()})

    def release_threads(self) -> None: ...

    def close(self) -> None: ...


class EagerLaya:
    """One checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        request = CompileRequest(checkpoint=str(checkpoint), out=checkpoint / "never")
        install_packed_attention()
        self.plan: CompilePlan = plan_compile(request, SilentProgress())
        assert self.plan.decision is not None
        self.decision = self.plan.decision
        self.engine = EagerEngine(load_packed(self.plan, Precision.FLOAT32))
        max_tokens = self.decision.limits.max_len
        self._tokenizer = TextTokenizer.from_file(
            self.plan.config.tokenizer.tokenizer,
            vocab_size=self.plan.config.model.vocab_size,
            max_input_tokens=max_tokens,
        )
        self._format = open_format(
            self.decision, self._tokenizer, max_tokens=max_tokens, is_truncating=True
        )

    def request(self, body: dict[str, Any]) -> DecideRequest:
        """A body as the server takes it."""
        read = read_body(parse_exact(json.dumps(body, ensure_ascii=False).encode()))
        return DecideRequest(
            state=parse_state(read.state),
            questions=parse_questions(read.questions, self.decision.limits, 1024),
            max_len=read.max_len,
            head_max_len=read.head_max_len,
        )

    def encode(self, body: dict[str, Any]) -> EncodedDecisions:
        """The sequences of a body."""
        return self._format.encode(self.request(body), is_wanted=always)

    def probabilities(self, encoded: Sequence[EncodedDecisions]) -> list[list[list[float]]]:
        """Of each question of each request, all requests in one batch."""
        sequences = [sequence for request in encoded for sequence in request.sequences]
        batch = pack(sequences, position_offset=0)
        output = self.engine.run(batch, frozenset({_READOUT.output}))
        rows = iter(read_rows(output.tensors, batch, [_READOUT] * len(sequences)))
        found = []
        for request in encoded:
            own = [np.asarray(next(rows), dtype=np.float32) for _ in request.sequences]
            found.append(
                [
                    probabilities_of(place.read(own[place.sequence]), place.temperature).tolist()
                    for place in request.places
                ]
            )
        return found

    def loaded(self) -> LoadedModel:
        """The checkpoint ready for a service."""
        model, limits = self.plan.config.model, self.engine.limits
        info = ModelInfo(
            name="eager",
            kind=Kind.DECISION,
            artifact_id="sha256:" + "0" * 64,
            format_version=1,
            target_name="cpu-x86_64-avx2-f32",
            backend=Backend.AOTI,
            device=Device.CPU,
            precision=Precision.FLOAT32,
            vocab_size=model.vocab_size,
            max_input_tokens=self.decision.limits.max_len,
            max_batch_tokens=limits.max_tokens,
            fill_tokens=4096,
            max_batch_items=limits.max_sequences,
            width=None,
            pooling=(),
            decision=self.decision,
            prompt_names=(),
            capabilities=capabilities_of(Kind.DECISION, has_token_output=False),
            source_revision=None,
        )
        return LoadedModel(
            engine=self.engine,
            tokenizer=self._tokenizer,
            prompts=PromptTable(named={}),
            info=info,
            position_offset=0,
            main_output=_READOUT.output,
            heads=Heads(),
            seconds={},
        )
