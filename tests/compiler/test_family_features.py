"""Every special trait of a family counts in the packed model: without it, parity is far away.

The packed model runs on the operators' references in torch; that compiled engines equal it is what
the matrix tests show.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import Precision
from infinity_v3.compiler.checkpoint import open_checkpoint
from infinity_v3.compiler.engines import input_names, load_packed
from infinity_v3.compiler.packed import PackedModel, install_packed_attention
from infinity_v3.compiler.pipeline import CompilePlan, make_plan
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.tasks.task import Probe
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.runtime.batch import EncodedText, pack
from tiny_checkpoints import make_embedding_checkpoint
from tiny_families import TINY_FAMILIES, Feature

TOKEN_RTOL = 5e-5
FAR = 100 * TOKEN_RTOL
LENGTHS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 40, 70)
PUBLISHED_VALUES = {
    ("new", "rope-scaling"): {"rope_scaling": None},
    ("new", "rope-theta"): {"rope_theta": 50.0},
    ("llama_bidirec", "both-directions"): {
        "model_type": "llama",
        "architectures": ["LlamaModel"],
    },
}
"""How published configurations spell the loss of a trait, where that is not transformers' way."""
FEATURES = tuple(
    (family, feature) for family, recipe in TINY_FAMILIES.items() for feature in recipe.features
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A checkpoint, inputs, and what transformers makes of them: one (S, D) per input."""

    checkpoint: Path
    texts: tuple[EncodedText, ...]
    expected: tuple[NDArray[np.float32], ...]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> "Cases":
    return Cases(tmp_path_factory.mktemp("features"))


class Cases:
    """One case per family, made when first asked for."""

    def __init__(self, folder: Path) -> None:
        install_packed_attention()
        self._folder = folder
        self._made: dict[str, Case] = {}

    def __call__(self, family: str) -> Case:
        if family not in self._made:
            checkpoint = make_embedding_checkpoint(family, self._folder / family)
            self._made[family] = make_case(checkpoint)
        return self._made[family]


def make_case(checkpoint: Path) -> Case:
    plan = plan_of(checkpoint)
    rng = np.random.default_rng(5)
    padding = {plan.config.model.pad_token_id}
    ids = np.asarray([i for i in range(plan.config.model.vocab_size) if i not in padding])
    texts = tuple(make_text(rng.choice(ids, length), plan) for length in LENGTHS)
    run = plan.task.reference()
    expected = tuple(
        run(Probe(ids=text.input_ids, types=text.token_type_ids))["hidden"] for text in texts
    )
    return Case(checkpoint=checkpoint, texts=texts, expected=expected)


def make_text(ids: NDArray[np.int64], plan: CompilePlan) -> EncodedText:
    types = (np.arange(len(ids)) >= len(ids) // 2).astype(np.int64)
    return EncodedText(input_ids=ids, token_type_ids=types if plan.has_token_types else None)


def plan_of(checkpoint: Path) -> CompilePlan:
    request = CompileRequest(checkpoint=str(checkpoint), out=checkpoint / "unused")
    opened = open_checkpoint(request, SilentProgress())
    return make_plan(opened, read_hub_config(checkpoint), request, targets=())


def packed_hidden(
    plan: CompilePlan, model: PackedModel, texts: tuple[EncodedText, ...], *, position_offset: int
) -> Iterator[NDArray[np.float32]]:
    """Token vectors of each text, all texts in one batch."""
    batch = pack(texts, position_offset=position_offset)
    inputs = [torch.from_numpy(getattr(batch, name)) for name in input_names(plan)]
    with torch.inference_mode():
        hidden = model(*inputs)[-1].numpy()
    yield from np.split(hidden, batch.cu_seqlens[1:-1])


def worst_deviation(case: Case, found: Iterator[NDArray[np.float32]]) -> float:
    return max(
        float((np.abs(a - b) / np.maximum(1.0, np.abs(b))).max())
        for a, b in zip(found, case.expected, strict=True)
    )


def without(
    case: Case, family: str, feature: Feature, folder: Path
) -> Iterator[NDArray[np.float32]]:
    """What the packed model gives when it has lost a trait."""
    checkpoint = case.checkpoint
    values = PUBLISHED_VALUES.get((family, feature.name), feature.config)
    if values:
        checkpoint = with_config(checkpoint, values, folder)
    plan = plan_of(checkpoint)
    model = load_packed(plan, Precision.FLOAT32)
    texts, offset = case.texts, plan.limit.position_offset
    if feature.zero:
        set_to_zero(model, feature.zero)
    if feature.inputs == "no-token-types":
        texts = tuple(EncodedText(input_ids=text.input_ids) for text in texts)
    if feature.inputs == "positions-from-zero":
        offset = 0
    return packed_hidden(plan, model, texts, position_offset=offset)


def with_config(checkpoint: Path, values: object, folder: Path) -> Path:
    """The checkpoint under other configuration values."""
    changed = folder / "changed"
    changed.mkdir()
    for member in checkpoint.iterdir():
        (changed / member.name).symlink_to(member)
    document = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    document |= dict(values)  # type: ignore[call-overload]
    (changed / "config.json").unlink()
    (changed / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return changed


PACKED_NAMES = {"relative_attention_bias": "distance_bias"}
"""What a packed model makes of a parameter, where it keeps that instead."""


def set_to_zero(model: PackedModel, part: str) -> None:
    part = PACKED_NAMES.get(part, part)
    tensors = [
        tensor
        for tensors in (model.named_parameters(), model.named_buffers())
        for name, tensor in tensors
        if part in name
    ]
    assert tensors, part
    with torch.no_grad():
        for tensor in tensors:
            tensor.zero_()


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_a_packed_batch_equals_transformers(cases: Cases, family: str) -> None:
    case = cases(family)
    plan = plan_of(case.checkpoint)
    model = load_packed(plan, Precision.FLOAT32)
    found = packed_hidden(plan, model, case.texts, position_offset=plan.limit.position_offset)
    assert worst_deviation(case, found) <= TOKEN_RTOL


@pytest.mark.parametrize(
    ("family", "feature"), FEATURES, ids=[f"{family}-{f.name}" for family, f in FEATURES]
)
def test_parity_fails_by_far_without(
    cases: Cases, family: str, feature: Feature, tmp_path: Path
) -> None:
    case = cases(family)
    assert worst_deviation(case, without(case, family, feature, tmp_path)) >= FAR
