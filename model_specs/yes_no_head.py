"""The two words of a reranker that answers a question with one of them. Computes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import PairTemplate
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.json_file import shown
from infinity_v3.model_specs.module_configs import LogitScore
from infinity_v3.model_specs.pair_template import chat_pair_template, judge_pair_template
from infinity_v3.model_specs.vocabulary import read_vocabulary

YES, NO = "yes", "no"
YES_OPTION, NO_OPTION = "--yes-token", "--no-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNoHead:
    """The words, their ids, and how a pair is put to the model.

    Attributes:
        yes: the word whose logit counts.
        yes_id: its token.
        no: the word whose logit is taken off; None = none.
        no_id: its token.
        pair_template: None = pairs are the tokenizer's own.
        warnings: sentences for the user, in order.
    """

    yes: str
    yes_id: int
    no: str | None
    no_id: int | None
    pair_template: PairTemplate | None
    warnings: tuple[str, ...] = ()


def resolve_yes_no_head(config: HubConfig, *, yes: str | None, no: str | None) -> YesNoHead:
    """Resolve the words of a causal language model that ranks.

    Args:
        config: the checkpoint.
        yes, no: what the user asked for; None = the checkpoint's own, else "yes" and "no".

    Raises:
        UsageError: a word is not one token of the vocabulary, both are the same one, or the chat
            template has no place for a query and a document.
    """
    vocabulary = read_vocabulary(config.tokenizer.tokenizer)
    stored = config.logit_score
    if stored is not None:
        _check_ids(config, stored)
    template, warnings = _pair_template(config)
    stored_ids = (None, None) if stored is None else (stored.yes_id, stored.no_id)
    yes_id = _choose(config, vocabulary, yes, (YES_OPTION, YES, stored_ids[0]))
    no_id: int | None = None
    if stored is None or stored.no_id is not None or no is not None:
        no_id = _choose(config, vocabulary, no, (NO_OPTION, NO, stored_ids[1]))
    _refuse_one_word(config, yes_id, no_id)
    return YesNoHead(
        yes=_word(vocabulary, yes_id, YES),
        yes_id=yes_id,
        no=None if no_id is None else _word(vocabulary, no_id, NO),
        no_id=no_id,
        pair_template=template,
        warnings=warnings,
    )


def _word(vocabulary: Mapping[str, int], token: int, usual: str) -> str:
    return next((word for word, number in vocabulary.items() if number == token), usual)


def _choose(
    config: HubConfig,
    vocabulary: Mapping[str, int],
    asked: str | None,
    usual: tuple[str, str, int | None],
) -> int:
    """The token of the word that was asked for, else the stored one, else of the usual word."""
    flag, word, stored_id = usual
    if asked is None and stored_id is not None:
        return stored_id
    word = word if asked is None else asked
    if word not in vocabulary:
        raise UsageError(
            f"{config.tokenizer.tokenizer}: {flag} {_quoted(word)}: expected one token of the "
            f"vocabulary, found none of that spelling{nearest(word[:100], vocabulary)}"
        )
    return vocabulary[word]


def _quoted(word: str) -> str:
    return f"'{shown(word).strip(chr(34))}'"


def _refuse_one_word(config: HubConfig, yes_id: int, no_id: int | None) -> None:
    if yes_id == no_id:
        raise UsageError(
            f"{config.path}: expected two different tokens for yes and no, found token {yes_id} "
            f"for both, which scores every pair alike; give {YES_OPTION} and {NO_OPTION}"
        )


def _check_ids(config: HubConfig, stored: LogitScore) -> None:
    rows = config.model.vocab_size
    for number in (stored.yes_id, stored.no_id):
        if number is not None and number >= rows:
            raise UsageError(
                f"{stored.file}: expected ids of tokens below vocab_size {rows}, found {number}; "
                "take all files from one checkpoint"
            )


def _pair_template(config: HubConfig) -> tuple[PairTemplate | None, tuple[str, ...]]:
    template = chat_pair_template(config)
    if template is not None:
        return template, ()
    if config.logit_score is None:
        return judge_pair_template(), (
            f"{config.path}: no chat template of pairs is stored, taking the prompt of "
            "Qwen3-Reranker with its instruction for web search",
        )
    if config.sentence is not None and config.sentence.takes_messages:
        raise UsageError(
            f"{config.path}: expected a chat template with the roles query and document, which "
            f"{config.sentence.file.name} asks for, found none; take all files from one checkpoint"
        )
    return None, ()
