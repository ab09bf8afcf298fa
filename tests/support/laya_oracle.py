"""What the `laya` package says to questions: its sequences, and probabilities before it rounds.

Shares no code with the product. Knows nothing of artifacts.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from laya import Agent
from laya.common import QTYPES, collate_items, temp_bucket

Questions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class OracleAnswer:
    """One question's sequence and the probabilities of its options."""

    ids: tuple[int, ...]
    markers: tuple[int, ...]
    is_truncated: bool
    probabilities: tuple[float, ...] = ()


class LayaOracle:
    """One checkpoint in the package's own runtime, in float32."""

    def __init__(self, checkpoint: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.agent = Agent(str(checkpoint), device="cpu")

    def answer(
        self,
        state: object,
        questions: Questions,
        *,
        max_len: int | None = None,
        head_max_len: int | None = None,
        is_run: bool = True,
    ) -> dict[str, OracleAnswer]:
        """Run every question by itself; without `is_run` there are no probabilities.

        Raises:
            ValueError: the package refuses the request.
        """
        agent, names = self.agent, list(questions)
        for name, question in questions.items():
            agent._check_question(name, dict(question))
        asked = {name: agent._to_internal(dict(question)) for name, question in questions.items()}
        items = agent._encode_state(state, names, asked, max_len, head_max_len)
        return {
            name: OracleAnswer(
                ids=tuple(item["ids"]),
                markers=tuple(item["markers"]),
                is_truncated=bool(item["state_stats"]["truncated"]),
                probabilities=self._run(item, asked[name]["t"]) if is_run else (),
            )
            for name, item in zip(names, items, strict=True)
        }

    def _run(self, item: dict[str, Any], kind: str) -> tuple[float, ...]:
        batch = collate_items([[item]], self.agent.tok.pad_token_id)
        with torch.no_grad():
            logits, _ = self.agent._forward(batch)
        count, row = len(item["markers"]), QTYPES[kind]
        by_options = self.agent.temperature_by_options
        temperature = by_options.get(temp_bucket(row, count), self.agent.temperature[row])
        scaled = logits[0, :count].astype(np.float64) / temperature
        powers = np.exp(scaled - scaled.max())
        return tuple((powers / powers.sum()).tolist())
