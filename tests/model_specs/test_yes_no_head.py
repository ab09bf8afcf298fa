"""Rerankers that answer with a word: which tokens count, and how a pair is put to them."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.pair_template import judge_pair_template
from infinity_v3.model_specs.vocabulary import read_vocabulary
from infinity_v3.model_specs.yes_no_head import YesNoHead, resolve_yes_no_head
from tiny_checkpoints import make_tiny_checkpoint, remove_json_key, set_json_key
from tiny_retrievers import make_yes_no_reranker_checkpoint

SCORE = "1_LogitScore/config.json"


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return make_yes_no_reranker_checkpoint("qwen3", tmp_path)


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    return make_yes_no_reranker_checkpoint("qwen3", tmp_path, modules=True)


def head_of(path: Path, yes: str | None = None, no: str | None = None) -> YesNoHead:
    return resolve_yes_no_head(read_hub_config(path), yes=yes, no=no)


def ids_of(path: Path, *words: str) -> tuple[int, ...]:
    vocabulary = read_vocabulary(path / "tokenizer.json")
    return tuple(vocabulary[word] for word in words)


def test_a_bare_model_answers_yes_or_no_to_the_published_prompt(bare: Path) -> None:
    head = head_of(bare)
    assert (head.yes_id, head.no_id) == ids_of(bare, "yes", "no")
    assert head.yes == "yes"
    assert head.pair_template == judge_pair_template()
    assert "no chat template of pairs is stored" in head.warnings[0]


def test_stored_tokens_count_by_their_number(scored: Path) -> None:
    head = head_of(scored)
    assert (head.yes_id, head.no_id) == ids_of(scored, "yes", "no")
    assert head.warnings == ()
    assert head.pair_template is not None
    assert head.pair_template.before.startswith("<|im_start|>system\nJudge whether")
    yes, no = ids_of(scored, "yes", "no")
    set_json_key(scored / SCORE, "true_token_id", no)
    set_json_key(scored / SCORE, "false_token_id", yes)
    assert (head_of(scored).yes, head_of(scored).no) == ("no", "yes")


def test_the_user_may_choose_other_words(scored: Path) -> None:
    head = head_of(scored, yes="no", no="yes")
    assert (head.yes_id, head.no_id) == ids_of(scored, "no", "yes")
    assert head.yes == "no"


def test_one_word_may_be_all(scored: Path) -> None:
    set_json_key(scored / SCORE, "false_token_id", None)
    assert head_of(scored).no_id is None
    assert head_of(scored, no="no").no_id == ids_of(scored, "no")[0]


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("true_token_id", None, "true_token_id: expected the id of a token"),
        ("true_token_id", "yes", "true_token_id: expected a whole number"),
        ("false_token_id", -1, "false_token_id: expected a whole number"),
        ("false_token_id", 10**6, "expected ids of tokens below vocab_size"),
    ],
)
def test_stored_tokens_must_be_tokens(scored: Path, key: str, value: object, sentence: str) -> None:
    set_json_key(scored / SCORE, key, value)
    with pytest.raises(UsageError, match=sentence):
        head_of(scored)


def test_an_unknown_word_is_refused_with_the_nearest(bare: Path) -> None:
    with pytest.raises(UsageError) as caught:
        head_of(bare, yes="yess")
    assert "--yes-token 'yess': expected one token of the vocabulary" in str(caught.value)
    assert "did you mean yes?" in str(caught.value)
    with pytest.raises(UsageError, match="--no-token 'zzzzqqqq'"):
        head_of(bare, no="zzzzqqqq")


def test_messages_need_a_template_of_pairs(scored: Path) -> None:
    remove_json_key(scored / "tokenizer_config.json", "chat_template")
    with pytest.raises(UsageError, match="expected a chat template with the roles query and"):
        head_of(scored)
    set_json_key(scored / "sentence_bert_config.json", "modality_config", {"text": {}})
    assert head_of(scored).pair_template is None


@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "modernbert"])
def test_the_vocabulary_is_read_from_every_kind_of_tokenizer(tmp_path: Path, family: str) -> None:
    make_tiny_checkpoint(family, tmp_path)
    vocabulary = read_vocabulary(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    known = Tokenizer.from_str(json.dumps(content)).get_vocab(with_added_tokens=True)
    assert vocabulary == known
