"""The tiny checkpoints of the tests are what they claim to be."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from family_oracles import (
    TokenRow,
    chat_rows,
    colbert_vectors,
    cross_encoder_scores,
    hidden_states,
    load_reference,
    loading_problems,
    masked_lm_logits,
    next_token_logits,
    reference_config,
    run,
    sentence_vectors,
    sequence_logits,
    sparse_vectors,
    splade_formula,
    token_logits,
    token_rows,
    yes_log_odds,
    yes_probabilities,
)
from reference_library import load_reference_model, load_reference_tokenizer
from tiny_checkpoints import (
    FAMILIES,
    keep_only_pytorch_bin,
    make_embedding_checkpoint,
    make_tiny_checkpoint,
    respell_config,
    split_into_shards,
    truncate_safetensors,
)
from tiny_families import (
    BIO_LABELS,
    CAUSAL_LM,
    MASKED_LM,
    SEQUENCE,
    TINY_FAMILIES,
    TOKEN,
    Feature,
    TinyFamily,
)
from tiny_retrievers import (
    COLBERT_LAYOUTS,
    ColbertTraits,
    make_colbert_checkpoint,
    make_reranker_checkpoint,
    make_splade_checkpoint,
    make_yes_no_reranker_checkpoint,
)
from tiny_templates import PLAIN_PAIR_TEMPLATE

TEXTS = (
    "What is Deep Learning?",
    "the cat sat on the mat",
    "die Katze ist schön",
    "深度 学习",
    "привет мир",
    "",
    "zzqqx",
)
PAIRS = (("what is a cat", "the cat sat on the mat"), ("what is a cat", "rain today. the sun!"))
LONG_PAIR = (
    "the quick brown fox jumps over the lazy dog and the cat sat on the mat. What is machine "
    "learning? the quick brown fox jumps over the lazy dog, der Hund und die Katze.",
    "deep learning models search documents; today the weather is rain, tomorrow sun. deep learning "
    "models search documents, la maison et le chat.",
)
TOLERANCE = 2e-5
"""How far a compiled model may be from transformers; a trait must act a hundred times as much."""

RECIPES = tuple(TINY_FAMILIES)
WITH_HEADS = [(name, head) for name in RECIPES for head in (None, *TINY_FAMILIES[name].heads)]
FEATURES = [
    pytest.param(name, feature, id=f"{name}-{feature.name}")
    for name, family in TINY_FAMILIES.items()
    for feature in family.features
]
RESPELLED = [name for name in RECIPES if name not in ("ultrabert", "ultrabert-windows")]

MakeOnce = Callable[[str, str | None], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """Call it with a family and a head: that checkpoint without modules; read only."""
    root = tmp_path_factory.mktemp("families")

    def make(family: str, head: str | None) -> Path:
        path = root / f"{family}-{head}"
        if path.exists():
            return path
        labels = BIO_LABELS if head == TOKEN else ()
        return make_tiny_checkpoint(family, path, head=head, labels=labels, pooling=None, seed=2)

    return make


def digests(path: Path) -> dict[str, str]:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def stored_names(path: Path) -> set[str]:
    with safe_open(path / "model.safetensors", framework="pt") as file:
        return set(file.keys())


def difference(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().max())


def pooled(family: TinyFamily, states: list[torch.Tensor]) -> torch.Tensor:
    if family.pooling == "mean":
        vectors = [rows.mean(dim=0) for rows in states]
    else:
        vectors = [rows[0 if family.pooling == "cls" else -1] for rows in states]
    return torch.nn.functional.normalize(torch.stack(vectors), dim=-1)


def last_hidden_without(feature: Feature, path: Path, row: TokenRow) -> torch.Tensor:
    model = load_reference(path, overrides=feature.config)
    inputs = {}
    if feature.zero:
        lost = [value for name, value in model.named_parameters() if feature.zero in name]
        assert lost, f"no parameter has {feature.zero} in its name"
        for value in lost:
            value.detach().zero_()
    elif feature.inputs == "positions-from-zero":
        inputs = {"position_ids": torch.arange(len(row.ids))[None]}
    elif feature.inputs == "no-token-types":
        row = TokenRow(ids=row.ids, types=[0] * len(row.ids))
    return run(model, row, **inputs)["last_hidden_state"]


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_told_apart(checkpoints: dict[str, Path], family: str) -> None:
    model = SentenceTransformer(str(checkpoints[family]), device="cpu")
    vectors = model.encode(list(TEXTS), batch_size=1)
    cosines = vectors @ vectors.T - np.eye(len(TEXTS))
    assert cosines.max() < 0.98, f"closest pair has cosine {cosines.max():.4f}"


@pytest.mark.parametrize("family", FAMILIES)
def test_order_of_words_matters(checkpoints: dict[str, Path], family: str) -> None:
    model = SentenceTransformer(str(checkpoints[family]), device="cpu")
    first, second = model.encode(["the dog and the cat", "the cat and the dog"], batch_size=1)
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("family", RECIPES)
def test_hidden_states_tell_texts_apart_and_stay_small(made: MakeOnce, family: str) -> None:
    path = made(family, None)
    texts = [text for text in TEXTS if text] + ["the dog and the cat", "the cat and the dog"]
    states = hidden_states(path, token_rows(path, texts))
    assert max(float(rows.abs().max()) for rows in states) < 10
    vectors = pooled(TINY_FAMILIES[family], states)
    assert float((vectors @ vectors.T - torch.eye(len(texts))).max()) < 0.9995
    assert difference(vectors[-1], vectors[-2]) > 1e-2


@pytest.mark.parametrize(("family", "head"), WITH_HEADS)
def test_transformers_finds_every_weight_and_no_other(
    made: MakeOnce, family: str, head: str | None
) -> None:
    assert loading_problems(made(family, head), head) == {}


@pytest.mark.parametrize(("family", "feature"), FEATURES)
def test_feature_acts(made: MakeOnce, family: str, feature: Feature) -> None:
    path = made(family, None)
    (row,) = token_rows(path, [LONG_PAIR])
    with_it = run(load_reference(path), row)["last_hidden_state"]
    assert difference(last_hidden_without(feature, path, row), with_it) > 100 * TOLERANCE


@pytest.mark.parametrize("family", RECIPES)
def test_attention_is_neither_flat_nor_saturated(made: MakeOnce, family: str) -> None:
    model = load_reference(made(family, None), overrides={"output_attentions": True})
    (row,) = token_rows(made(family, None), [LONG_PAIR])
    with torch.inference_mode():
        attentions = model(torch.tensor([row.ids])).attentions
    largest = torch.cat([weights.amax(dim=-1).flatten() for weights in attentions])
    assert 0.05 < float(largest.mean()) < 0.8


@pytest.mark.parametrize(("family", "head"), [pair for pair in WITH_HEADS if pair[1]])
def test_head_answers_differ_between_texts(made: MakeOnce, family: str, head: str) -> None:
    path = made(family, head)
    rows = token_rows(path, TEXTS[:2])
    if head == SEQUENCE:
        first, second = sequence_logits(path, rows)
        assert first.shape == (2,)
    elif head == TOKEN:
        first, second = (logits.mean(dim=0) for logits in token_logits(path, rows))
        assert first.shape == (len(BIO_LABELS),)
    elif head == MASKED_LM:
        first, second = (logits.mean(dim=0) for logits in masked_lm_logits(path, rows))
        assert first.shape == (reference_config(path).vocab_size,)
    else:
        first, second = next_token_logits(path, rows, [5, 6, 7])
    assert difference(first, second) > 1e-3


@pytest.mark.parametrize("family", RECIPES)
def test_sentence_transformers_pools_the_same_states(tmp_path: Path, family: str) -> None:
    path = make_embedding_checkpoint(family, tmp_path / "checkpoint")
    vectors = sentence_vectors(path, TEXTS[:3])
    width = 32 if family == "embeddinggemma" else TINY_FAMILIES[family].hidden_size
    assert vectors.shape == (3, width)
    if family != "embeddinggemma":  # its dense layers follow the pooling
        states = hidden_states(path, token_rows(path, TEXTS[:3]))
        assert difference(vectors, pooled(TINY_FAMILIES[family], states)) < 1e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_same_seed_gives_the_same_bytes(tmp_path: Path, family: str) -> None:
    first = make_tiny_checkpoint(family, tmp_path / "first", seed=3)
    again = make_tiny_checkpoint(family, tmp_path / "again", seed=3)
    other = make_tiny_checkpoint(family, tmp_path / "other", seed=4)
    assert digests(first) == digests(again)
    changed = {name for name, digest in digests(first).items() if digests(other)[name] != digest}
    assert changed == {"model.safetensors"}


@pytest.mark.parametrize(("family", "head"), WITH_HEADS)
def test_same_seed_gives_the_same_head(
    made: MakeOnce, tmp_path: Path, family: str, head: str | None
) -> None:
    labels = BIO_LABELS if head == TOKEN else ()
    again = make_tiny_checkpoint(family, tmp_path, head=head, labels=labels, pooling=None, seed=2)
    assert digests(again) == digests(made(family, head))


@pytest.mark.parametrize("family", FAMILIES)
def test_tokenizer_marks_start_and_end_as_the_model_expects(
    checkpoints: dict[str, Path], family: str
) -> None:
    tokenizer = load_reference_tokenizer(checkpoints[family])
    ids = tokenizer("the cat")["input_ids"]
    assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
    config = load_reference_model(checkpoints[family]).config
    assert tokenizer.pad_token_id == config.pad_token_id
    assert tokenizer.unk_token_id not in tokenizer("the cat", add_special_tokens=False)["input_ids"]
    assert len(tokenizer) <= config.vocab_size


@pytest.mark.parametrize("family", RECIPES)
def test_tokenizer_fits_the_vocabulary_and_reads_every_script(made: MakeOnce, family: str) -> None:
    path = made(family, None)
    tokenizer = load_reference_tokenizer(path)
    config = reference_config(path)
    assert len(tokenizer) == config.vocab_size
    assert tokenizer.pad_token_id == config.pad_token_id
    backend = Tokenizer.from_file(str(path / "tokenizer.json"))
    for text in ("the cat", "die katze ist schön", "привет", "深度"):
        ids = backend.encode(text, add_special_tokens=False).ids
        assert tokenizer.unk_token_id not in ids
        assert tokenizer(text)["input_ids"] == backend.encode(text).ids


@pytest.mark.parametrize(
    "family", [name for name in RECIPES if CAUSAL_LM in TINY_FAMILIES[name].heads]
)
def test_yes_and_no_are_single_tokens(made: MakeOnce, family: str) -> None:
    backend = Tokenizer.from_file(str(made(family, CAUSAL_LM) / "tokenizer.json"))
    for word in ("yes", "no"):
        assert backend.encode(f"\n{word}", add_special_tokens=False).tokens[-1] == word


def test_labels_and_problem_type_are_written(tmp_path: Path) -> None:
    path = make_tiny_checkpoint(
        "bert",
        tmp_path,
        head=SEQUENCE,
        labels=("bad", "fine", "good"),
        problem_type="multi_label_classification",
    )
    config = load_reference(path, SEQUENCE).config
    assert config.id2label == {0: "bad", 1: "fine", 2: "good"}
    assert config.problem_type == "multi_label_classification"
    assert sequence_logits(path, token_rows(path, TEXTS[:2])).shape == (2, 3)


def test_new_is_spelled_as_public_checkpoints_are(made: MakeOnce) -> None:
    path = made("new", SEQUENCE)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["architectures"]) == (
        "new",
        ["NewForSequenceClassification"],
    )
    assert {
        "new.encoder.layer.0.attention.qkv_proj.weight",
        "new.encoder.layer.1.mlp.up_gate_proj.weight",
        "new.pooler.dense.bias",
        "classifier.weight",
    } <= stored_names(path)


def test_bidirectional_llama_is_spelled_as_public_checkpoints_are(made: MakeOnce) -> None:
    path = made("llama_bidirec", None)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["architectures"], config["pooling"]) == (
        "llama_bidirec",
        ["LlamaBidirectionalModel"],
        "avg",
    )
    assert "is_causal" not in config


@pytest.mark.parametrize("family", ["nomic_bert", "gte", "jina_embeddings_v3", "qwen3_moe"])
def test_own_tensor_names_hold_the_same_model(made: MakeOnce, tmp_path: Path, family: str) -> None:
    own = make_tiny_checkpoint(family, tmp_path, pooling=None, seed=2, own_tensor_names=True)
    assert stored_names(own) != stored_names(made(family, None))
    rows = token_rows(own, TEXTS[:2])
    for one, other in zip(
        hidden_states(own, rows), hidden_states(made(family, None), rows), strict=True
    ):
        # Stored one by one or as one tensor, experts lie differently in memory.
        assert difference(one, other) < 1e-5


@pytest.mark.parametrize("family", RESPELLED)
def test_config_of_transformers_4_means_the_same(
    made: MakeOnce, tmp_path: Path, family: str
) -> None:
    path = make_tiny_checkpoint(family, tmp_path, pooling=None, seed=2)
    respell_config(path)
    rows = token_rows(path, TEXTS[:2])
    for one, other in zip(
        hidden_states(path, rows), hidden_states(made(family, None), rows), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("layout", COLBERT_LAYOUTS)
@pytest.mark.parametrize("family", ["bert", "modernbert", "xlm-roberta"])
def test_colbert_vectors(tmp_path: Path, family: str, layout: str) -> None:
    path = make_colbert_checkpoint(family, tmp_path / "colbert", layout=layout)
    texts = ["what is a cat?", "the cat sat."]
    queries = colbert_vectors(path, texts, is_query=True)
    documents = colbert_vectors(path, texts, is_query=False)
    assert {tuple(vectors.shape) for vectors in queries} == {(16, 24)}
    # Stanford's marker is a token of its own, so that a space is left in front of the text.
    lead = " " if (family, layout) == ("modernbert", "stanford") else ""
    plain = token_rows(path, [lead + text for text in texts])
    skipped = family != "xlm-roberta" or layout != "stanford"
    for vectors, row in zip(documents, plain, strict=True):
        # The marker comes in, the punctuation goes out.
        assert vectors.shape == (len(row.ids) + 1 - skipped, 24)
    norms = torch.cat([*queries, *documents]).norm(dim=-1)
    assert torch.allclose(norms, torch.ones_like(norms))


def test_colbert_layouts_hold_the_same_model(tmp_path: Path) -> None:
    answers = [
        torch.cat(colbert_vectors(path, [text for pair in PAIRS for text in pair], is_query=True))
        for layout in COLBERT_LAYOUTS
        for path in [make_colbert_checkpoint("bert", tmp_path / layout, layout=layout)]
    ]
    assert all(difference(answer, answers[0]) < 1e-6 for answer in answers)


@pytest.mark.parametrize("layout", COLBERT_LAYOUTS)
def test_attention_to_the_expansion_acts(tmp_path: Path, layout: str) -> None:
    markers = ("[unused0]", "[unused1]") if layout == "stanford" else ("[Q] ", "[D] ")
    answers = []
    for attend in (False, True):
        traits = ColbertTraits(
            query_prefix=markers[0], document_prefix=markers[1], attend_to_expansion=attend
        )
        path = make_colbert_checkpoint("bert", tmp_path / f"{attend}", layout=layout, traits=traits)
        answers.append(colbert_vectors(path, ["what is a cat"], is_query=True)[0])
    assert difference(*answers) > 100 * TOLERANCE


@pytest.mark.parametrize("layout", ["pylate", "sentence-transformers"])
def test_queries_may_stay_unexpanded(tmp_path: Path, layout: str) -> None:
    traits = ColbertTraits(expand_queries=False, skip_punctuation=False)
    path = make_colbert_checkpoint("bert", tmp_path / "colbert", layout=layout, traits=traits)
    (query,) = colbert_vectors(path, ["what is a cat?"], is_query=True)
    (document,) = colbert_vectors(path, ["what is a cat?"], is_query=False)
    assert query.shape == document.shape == (8, 24)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_splade_vectors_follow_the_published_formula(tmp_path: Path, family: str) -> None:
    path = make_splade_checkpoint(family, tmp_path)
    vectors = sparse_vectors(path, TEXTS[:3])
    assert difference(vectors, splade_formula(path, token_rows(path, TEXTS[:3]))) < 1e-6
    present = (vectors > 0).float().mean(dim=1)
    assert float(present.min()) > 0.005
    assert float(present.max()) < 0.3
    assert difference(vectors[0], vectors[1]) > 1e-2


@pytest.mark.parametrize(
    "family", ["bert", "xlm-roberta", "deberta-v2", "modernbert", "new", "mistral", "gemma3_text"]
)
def test_reranker_scores_are_the_head_s_logits(tmp_path: Path, family: str) -> None:
    path = make_reranker_checkpoint(family, tmp_path / "checkpoint")
    logits = sequence_logits(path, token_rows(path, PAIRS)).squeeze(-1)
    assert difference(cross_encoder_scores(path, PAIRS), logits) < 1e-6


def test_reranker_without_a_note_gets_a_sigmoid(tmp_path: Path) -> None:
    path = make_reranker_checkpoint("bert", tmp_path, activation=None)
    logits = sequence_logits(path, token_rows(path, PAIRS)).squeeze(-1)
    assert difference(cross_encoder_scores(path, PAIRS), logits.sigmoid()) < 1e-6


@pytest.mark.parametrize("family", ["qwen3", "ministral3"])
def test_reranker_with_a_pair_template(tmp_path: Path, family: str) -> None:
    path = make_reranker_checkpoint(family, tmp_path, template=PLAIN_PAIR_TEMPLATE)
    logits = sequence_logits(path, chat_rows(path, PAIRS)).squeeze(-1)
    assert difference(cross_encoder_scores(path, PAIRS), logits) < 1e-6
    assert difference(logits[0], logits[1]) > 1e-3


def test_yes_no_reranker(tmp_path: Path) -> None:
    path = make_yes_no_reranker_checkpoint("qwen3", tmp_path, modules=True)
    probabilities = yes_probabilities(path, chat_rows(path, PAIRS))
    assert difference(cross_encoder_scores(path, PAIRS), probabilities) < 1e-6
    odds = yes_log_odds(path, chat_rows(path, PAIRS))
    assert difference(odds[0], odds[1]) > 1e-3
    told = yes_log_odds(path, chat_rows(path, PAIRS, instruction="search for dogs"))
    assert difference(told, odds) > 1e-3


def test_bare_yes_no_reranker_has_no_template_for_pairs(tmp_path: Path) -> None:
    path = make_yes_no_reranker_checkpoint("qwen3", tmp_path)
    with pytest.raises(ValueError, match="cannot carry"):
        cross_encoder_scores(path, PAIRS)
    assert not (path / "modules.json").exists()


def test_weights_are_stored_in_the_asked_type(tmp_path: Path) -> None:
    path = make_tiny_checkpoint("bert", tmp_path, dtype="bfloat16")
    assert load_reference_model(path).dtype is torch.bfloat16


def test_shards_hold_the_same_model(bert: Path) -> None:
    before = load_reference_model(bert).state_dict()
    after = load_reference_model(split_into_shards(bert)).state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_missing_shard_is_missing(bert: Path) -> None:
    split_into_shards(bert, remove_shard=2)
    names = sorted(file.name for file in bert.glob("model*"))
    assert names == ["model-00001-of-00002.safetensors", "model.safetensors.index.json"]


def test_truncated_weights_cannot_be_opened(bert: Path) -> None:
    truncate_safetensors(bert)
    with pytest.raises(SafetensorError), safe_open(bert / "model.safetensors", framework="pt"):
        pass


def test_pytorch_bin_is_the_only_weight_file(bert: Path) -> None:
    names = {file.name for file in keep_only_pytorch_bin(bert).glob("*model*")}
    assert "pytorch_model.bin" in names
    assert "model.safetensors" not in names
