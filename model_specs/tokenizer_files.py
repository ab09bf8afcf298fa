"""The tokenizer of a checkpoint: its files and what they say of lengths. Tokenises nothing."""

from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_object

_SLOW_FILES = (
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
_PAIR_OF_SPECIALS = ("BertProcessing", "RobertaProcessing")
# "No limit" is written as 10**30 by transformers.
_MAX_MODEL_LENGTH = 10**40


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """Files and facts of the tokenizer.

    Attributes:
        tokenizer: tokenizer.json.
        companions: of tokenizer_config.json, special_tokens_map.json and chat_template.jinja those
            present.
        chat_template: chat_template.jinja, when present.
        truncation_side: "right" or "left".
        model_max_length: limit in tokens that tokenizer_config.json states, None when none is
            stated.
        num_special_tokens: tokens that the post-processor adds to one text; 0 = it adds none.
        lowers_case: the normaliser lowers the text.
    """

    tokenizer: Path
    companions: tuple[Path, ...]
    chat_template: Path | None
    truncation_side: str
    model_max_length: int | None
    num_special_tokens: int
    lowers_case: bool


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Find and read the tokenizer files of a checkpoint folder.

    Raises:
        UsageError: tokenizer.json is absent or isn't one, or tokenizer_config.json is wrong.
        RunFailedError: a file can't be read.
    """
    tokenizer = folder / "tokenizer.json"
    if not is_present(tokenizer):
        raise UsageError(_missing_sentence(folder))
    content = read_object(tokenizer)
    if content.child("model") is None:
        content.refuse("model", "the model of a fast tokenizer")
    config = _read_config(folder / "tokenizer_config.json")
    names = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
    companions = tuple(folder / name for name in names if is_present(folder / name))
    chat_template = folder / "chat_template.jinja"
    return TokenizerFiles(
        tokenizer=tokenizer,
        companions=companions,
        chat_template=chat_template if chat_template in companions else None,
        truncation_side=_read_truncation_side(config),
        model_max_length=_read_model_max_length(config),
        num_special_tokens=_count_special_tokens(content.child("post_processor")),
        lowers_case=_lowers_case(content.child("normalizer")),
    )


def _missing_sentence(folder: Path) -> str:
    slow = [name for name in _SLOW_FILES if is_present(folder / name)]
    found = f"only {', '.join(slow)}" if slow else "no tokenizer"
    return (
        f"{folder / 'tokenizer.json'}: expected a fast tokenizer, found {found}; write one with "
        "transformers: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
    )


def _read_config(file: Path) -> JsonObject:
    return read_object(file) if is_present(file) else JsonObject(file=file, values={})


def _read_truncation_side(config: JsonObject) -> str:
    side = config.text("truncation_side") or "right"
    if side not in ("right", "left"):
        config.refuse("truncation_side", "right or left")
    return side


def _read_model_max_length(config: JsonObject) -> int | None:
    value = config.values.get("model_max_length")
    # Written as a float (1e30) by some releases of transformers.
    if isinstance(value, float) and value >= _MAX_MODEL_LENGTH / 10**20:
        return None
    length = config.integer("model_max_length", minimum=1, maximum=_MAX_MODEL_LENGTH)
    return None if length is None or length >= 10**9 else length


def _count_special_tokens(processor: JsonObject | None) -> int:
    if processor is None:
        return 0
    kind = processor.text("type")
    if kind in _PAIR_OF_SPECIALS:
        return 2
    if kind == "TemplateProcessing":
        return sum(_count_template_ids(processor, item) for item in processor.children("single"))
    # "Sequence"; others, such as ByteLevel, only move offsets.
    return sum(_count_special_tokens(step) for step in processor.children("processors"))


def _count_template_ids(processor: JsonObject, item: JsonObject) -> int:
    special = item.child("SpecialToken")
    if special is None:
        return 0
    name, table = special.text("id"), processor.child("special_tokens")
    entry = table.child(name) if table and name is not None else None
    ids = entry.values.get("ids") if entry else None
    if not isinstance(ids, list):
        special.refuse("id", "a token of `special_tokens`")
    return len(ids)


def _lowers_case(normalizer: JsonObject | None) -> bool:
    if normalizer is None:
        return False
    kind = normalizer.text("type")
    if kind == "Lowercase":
        return True
    if kind == "BertNormalizer":
        return normalizer.flag("lowercase", default=True)
    return any(_lowers_case(step) for step in normalizer.children("normalizers"))
