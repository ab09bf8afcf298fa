"""What a compile decides for each layout of public checkpoints, before anything is built."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder

from family_oracles import colbert_vectors
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode, Precision, ScoreActivation
from infinity_v3.compiler.checkpoint import open_checkpoint
from infinity_v3.compiler.engines import input_names, load_packed
from infinity_v3.compiler.packed import install_packed_attention
from infinity_v3.compiler.pipeline import CompilePlan, make_plan
from infinity_v3.compiler.progress import SilentProgress
from infinity_v3.compiler.request import CompileRequest
from infinity_v3.compiler.tasks.task import Probe
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.runtime.batch import EncodedText, pack
from tiny_checkpoints import make_tiny_checkpoint, set_json_key
from tiny_families import SEQUENCE, TOKEN
from tiny_retrievers import (
    COLBERT_LAYOUTS,
    ColbertTraits,
    make_colbert_checkpoint,
    make_reranker_checkpoint,
    make_splade_checkpoint,
    make_yes_no_reranker_checkpoint,
)
from tiny_templates import PLAIN_PAIR_TEMPLATE

TEXTS = ("hello world, a test!", "again " * 40, "x")


def plan_of(path: Path, **options: object) -> CompilePlan:
    request = CompileRequest(checkpoint=str(path), out=path / "out", **options)  # type: ignore[arg-type]
    checkpoint = open_checkpoint(request, SilentProgress())
    return make_plan(checkpoint, read_hub_config(path), request, targets=())


@pytest.mark.parametrize("layout", COLBERT_LAYOUTS)
def test_late_interaction_in_each_layout(tmp_path: Path, layout: str) -> None:
    plan = plan_of(make_colbert_checkpoint("bert", tmp_path / "m", layout=layout))
    heads = plan.task.heads
    assert plan.kind is Kind.LATE_INTERACTION
    assert plan.task.outputs == ("token_vectors",)
    assert (heads.dimensions, heads.normalize, heads.similarity) == (24, True, "maxsim")
    assert heads.late_interaction is not None
    assert heads.late_interaction.query_length == 16
    assert plan.task.has_key_counts
    assert plan.config.prompts.default == "document"
    assert plan.limit.rule.max_tokens == 48
    assert plan.warnings == ()


@pytest.mark.parametrize("attends", [True, False])
@pytest.mark.parametrize("layout", COLBERT_LAYOUTS)
@pytest.mark.parametrize("side", ["query", "document"])
def test_token_vectors_are_those_of_the_library(
    tmp_path: Path, layout: str, attends: bool, side: str
) -> None:
    markers = ("[unused0]", "[unused1]") if layout == "stanford" else ("[Q] ", "[D] ")
    traits = ColbertTraits(
        query_prefix=markers[0], document_prefix=markers[1], attend_to_expansion=attends
    )
    path = make_colbert_checkpoint("bert", tmp_path / "m", layout=layout, traits=traits)
    plan = plan_of(path)
    run = plan.task.reference()
    library = MultiVectorEncoder(str(path), device="cpu")
    rules = plan.task.heads.late_interaction
    assert rules is not None
    wanted = colbert_vectors(path, TEXTS, is_query=side == "query")
    for text, rows in zip(TEXTS, wanted, strict=True):
        features = library.preprocess([text], prompt=library.prompts[side], task=side)
        ids, num_keys = features["input_ids"][0].numpy(), int(features["attention_mask"].sum())
        types = np.zeros_like(ids)
        found = run(Probe(ids=ids, types=types, key_count=num_keys))["token_vectors"]
        if side == "document":
            found = found[~np.isin(ids, rules.skipped_ids)]
        unit = found / np.linalg.norm(found, axis=1, keepdims=True)
        np.testing.assert_allclose(unit, rows.numpy(), atol=2e-6)


def test_nothing_is_hidden_where_queries_attend_to_their_expansion(tmp_path: Path) -> None:
    for name, traits in {
        "attending": ColbertTraits(attend_to_expansion=True),
        "as they are": ColbertTraits(expand_queries=False),
    }.items():
        path = make_colbert_checkpoint("bert", tmp_path / name, traits=traits)
        assert not plan_of(path).task.has_key_counts


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda tensors: tensors.pop("linear.weight"), "expected the projection linear.weight"),
        (lambda tensors: tensors.update({"linear.weight": torch.ones(24, 8)}), r"\(24, 32\)"),
        (lambda tensors: tensors.update({"linear.weight": torch.ones(8, 32)}), r"\(24, 32\)"),
    ],
)
def test_a_projection_that_does_not_fit_is_refused(
    tmp_path: Path, edit: Callable[[dict[str, torch.Tensor]], object], sentence: str
) -> None:
    path = make_colbert_checkpoint("bert", tmp_path / "m", layout="stanford")
    tensors = load_file(path / "model.safetensors")
    edit(tensors)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=sentence):
        plan_of(path)


def test_a_projection_with_nan_is_refused(tmp_path: Path) -> None:
    path = make_colbert_checkpoint("bert", tmp_path / "m", layout="stanford")
    tensors = load_file(path / "model.safetensors")
    tensors["linear.weight"][0, 0] = float("nan")
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    plan = plan_of(path)
    with pytest.raises(UsageError, match=r"linear\.weight: expected finite numbers"):
        plan.task.reference()


@pytest.mark.parametrize("modules", [True, False])
def test_sparse(tmp_path: Path, modules: bool) -> None:
    path = make_splade_checkpoint("bert", tmp_path / "m", modules=modules)
    plan = plan_of(path) if modules else plan_of(path, task=Kind.SPARSE)
    assert plan.kind is Kind.SPARSE
    assert plan.task.heads.similarity == "dot"
    assert plan.task.heads.dimensions == plan.config.model.vocab_size
    assert plan.limit.rule.max_tokens == (256 if modules else 512)


def test_sparse_with_a_doubled_logarithm(tmp_path: Path) -> None:
    probe = Probe(ids=np.arange(5, 15), types=np.zeros(10, dtype=np.int64))
    plain = make_splade_checkpoint("bert", tmp_path / "plain")
    once = plan_of(plain).task.reference()(probe)["sparse"]
    twice = plan_of(doubled_sparse(tmp_path / "m")).task.reference()(probe)["sparse"]
    assert once.max() > 0.1
    np.testing.assert_allclose(twice, np.log1p(once), rtol=1e-6)


def test_reranker(tmp_path: Path) -> None:
    path = make_reranker_checkpoint("bert", tmp_path / "m", labels=("relevant",))
    plan = plan_of(path)
    assert plan.kind is Kind.RERANKER
    assert plan.task.heads.labels == ("relevant",)
    assert plan.task.heads.activation is ScoreActivation.SIGMOID
    assert plan.task.pair_template is None
    (warning,) = plan.warnings
    assert 'scores are the sigmoid of the logit, the checkpoint states "Identity"' in warning


def test_reranker_with_a_template(tmp_path: Path) -> None:
    path = make_reranker_checkpoint(
        "llama", tmp_path / "m", activation=None, template=PLAIN_PAIR_TEMPLATE
    )
    template = plan_of(path).task.pair_template
    assert template is not None
    assert (template.before, template.between) == ("question:", " \n passage:")


@pytest.mark.parametrize("modules", [True, False])
def test_yes_no_reranker(tmp_path: Path, modules: bool) -> None:
    path = make_yes_no_reranker_checkpoint("qwen3", tmp_path / "m", modules=modules)
    plan = plan_of(path) if modules else plan_of(path, task=Kind.RERANKER)
    assert plan.kind is Kind.RERANKER
    assert plan.task.heads.labels == ("yes",)
    assert plan.task.heads.activation is ScoreActivation.SIGMOID
    assert plan.task.pair_template is not None
    assert len(plan.warnings) == (0 if modules else 1)


def yes_alone(path: Path) -> Path:
    make_yes_no_reranker_checkpoint("qwen3", path, modules=True)
    set_json_key(path / "1_LogitScore" / "config.json", "false_token_id", None)
    return path


def doubled_sparse(path: Path) -> Path:
    make_splade_checkpoint("bert", path)
    config_file = path / "1_SpladePooling" / "config.json"
    set_json_key(config_file, "activation_function", "log1p_relu")
    return path


def late_interaction(family: str, layout: str) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        marks = ("[unused0]", "[unused1]") if layout == "stanford" else ("[Q] ", "[D] ")
        traits = ColbertTraits(
            query_prefix=marks[0], document_prefix=marks[1], attend_to_expansion=True
        )
        return make_colbert_checkpoint(family, path, layout=layout, traits=traits)

    return make


PACKED: dict[str, Callable[[Path], Path]] = {
    "yes-alone": yes_alone,
    "doubled-sparse": doubled_sparse,
    "pylate": late_interaction("bert", "pylate"),
    "stanford": late_interaction("modernbert", "stanford"),
}


@pytest.mark.parametrize("case", PACKED)
def test_the_packed_head_is_the_reference(tmp_path: Path, case: str) -> None:
    install_packed_attention()
    plan = plan_of(PACKED[case](tmp_path / "m"))
    rng = np.random.default_rng(0)
    texts = [
        EncodedText(
            input_ids=rng.integers(5, plan.config.model.vocab_size, length),
            token_type_ids=np.zeros(length, dtype=np.int64) if plan.has_token_types else None,
        )
        for length in (1, 9, 17, 2)
    ]
    batch = pack(texts, position_offset=plan.limit.position_offset)
    inputs = [torch.from_numpy(getattr(batch, name)) for name in input_names(plan)]
    with torch.inference_mode():
        (rows,) = load_packed(plan, Precision.FLOAT32)(*inputs)
    run = plan.task.reference()
    lengths = [text.num_tokens for text in texts]
    split = rows.split(lengths) if plan.task.outputs == ("token_vectors",) else rows
    for text, found in zip(texts, split, strict=True):
        probe = Probe(ids=text.input_ids, types=text.token_type_ids)
        (wanted,) = run(probe).values()
        np.testing.assert_allclose(found.numpy(), wanted, atol=2e-5)


def test_yes_alone_is_another_score(tmp_path: Path) -> None:
    probe = Probe(ids=np.arange(5, 15))
    path = make_yes_no_reranker_checkpoint("qwen3", tmp_path / "m", modules=True)
    both = plan_of(path).task.reference()(probe)["logits"]
    alone = plan_of(yes_alone(tmp_path / "alone")).task.reference()(probe)["logits"]
    assert abs(alone[0] - both[0]) > 1e-3


@pytest.mark.parametrize("head", [SEQUENCE, TOKEN])
def test_classifiers(tmp_path: Path, head: str) -> None:
    labels = ("good", "bad", "other")
    path = make_tiny_checkpoint("bert", tmp_path / "m", head=head, pooling=None, labels=labels)
    plan = plan_of(path)
    assert plan.kind is (Kind.CLASSIFIER if head == SEQUENCE else Kind.TOKEN_CLASSIFIER)
    assert plan.task.heads.labels == labels
    assert plan.task.heads.activation is ScoreActivation.SOFTMAX
    assert plan.warnings == ()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"yes_token": "yes"}, ["--yes-token"]),
        ({"yes_token": "yes", "no_token": "no"}, ["--yes-token", "--no-token"]),
        ({"pooling": (PoolingMode.MEAN,)}, ["--pooling"]),
    ],
)
def test_options_without_a_meaning_are_told(
    tmp_path: Path, options: dict[str, object], names: list[str]
) -> None:
    path = make_reranker_checkpoint("bert", tmp_path / "m", activation=None)
    warnings = plan_of(path, **options).warnings
    assert warnings == tuple(
        f"{name}: has no meaning for this reranker model; ignored" for name in names
    )


def test_options_of_a_reranker_mean_nothing_to_an_embedding_model(tmp_path: Path) -> None:
    path = make_tiny_checkpoint("bert", tmp_path / "m")
    plan = plan_of(path, yes_token="yes", pooling=(PoolingMode.CLS,))
    assert plan.warnings == ("--yes-token: has no meaning for this embedding model; ignored",)
