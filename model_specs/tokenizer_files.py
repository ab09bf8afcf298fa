"""The tokenizer of a checkpoint: its files and what they say of lengths. Tokenises nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RunFailedError, UsageError
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_object

_SLOW_FILES = (
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
_CONFIG_FILE = "tokenizer_config.json"
_SPECIALS_FILE = "special_tokens_map.json"
_TEMPLATE_FILE = "chat_template.jinja"
_OLD_TEMPLATE_FILE = "chat_template.json"
_MORE_TEMPLATES = "additional_chat_templates/*.jinja"
_TEMPLATE_KEY = "chat_template"
_DEFAULT_TEMPLATE = "default"
MAX_TEMPLATE_BYTES = 256 * 1024
_PAIR_OF_SPECIALS = ("BertProcessing", "RobertaProcessing")
# "No limit" is written as 10**30 by transformers.
_MAX_MODEL_LENGTH = 10**40


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """A template of conversations; `file` is where it is written.

    `is_default`: transformers takes it where none is asked for by its name.
    """

    file: Path
    source: str
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """Files and facts of the tokenizer.

    Attributes:
        tokenizer: tokenizer.json.
        companions: of tokenizer_config.json, special_tokens_map.json and chat_template.jinja those
            present.
        templates: every chat template, the default one first: of chat_template.jinja and the folder
            of additional ones, else of tokenizer_config.json, else of chat_template.json.
        special_tokens: spelling by role, e.g. "mask_token", as the configuration names them.
        truncation_side: "right" or "left".
        model_max_length: limit in tokens that tokenizer_config.json states, None when none is
            stated.
        num_special_tokens: tokens that the post-processor adds to one text; 0 = it adds none.
        lowers_case: the normaliser lowers the text.
    """

    tokenizer: Path
    companions: tuple[Path, ...]
    templates: tuple[ChatTemplate, ...]
    special_tokens: Mapping[str, str]
    truncation_side: str
    model_max_length: int | None
    num_special_tokens: int
    lowers_case: bool

    @property
    def default_template(self) -> ChatTemplate | None:
        """The template of conversations, None without one."""
        return next((template for template in self.templates if template.is_default), None)


def read_tokenizer_files(folder: Path) -> TokenizerFiles:
    """Find and read the tokenizer files of a checkpoint folder.

    Raises:
        UsageError: tokenizer.json is absent or isn't one, tokenizer_config.json is wrong, or a chat
            template is too long.
        RunFailedError: a file can't be read.
    """
    tokenizer = folder / "tokenizer.json"
    if not is_present(tokenizer):
        raise UsageError(_missing_sentence(folder))
    content = read_object(tokenizer)
    if content.child("model") is None:
        content.refuse("model", "the model of a fast tokenizer")
    config = _read_config(folder / _CONFIG_FILE)
    names = (_CONFIG_FILE, _SPECIALS_FILE, _TEMPLATE_FILE)
    companions = tuple(folder / name for name in names if is_present(folder / name))
    return TokenizerFiles(
        tokenizer=tokenizer,
        companions=companions,
        templates=_read_templates(folder, config),
        special_tokens=_read_special_tokens(_read_config(folder / _SPECIALS_FILE))
        | _read_special_tokens(config),
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


def _read_templates(folder: Path, config: JsonObject) -> tuple[ChatTemplate, ...]:
    files = [file for file in (folder / _TEMPLATE_FILE,) if is_present(file)]
    files += sorted(folder.glob(_MORE_TEMPLATES))
    if files:
        return tuple(
            ChatTemplate(file=file, source=_read_template(file), is_default=file.parent == folder)
            for file in files
        )
    return _templates_in(config) or _templates_in(_read_config(folder / _OLD_TEMPLATE_FILE))


def _read_template(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_TEMPLATE_BYTES + 1)
        return _checked_source(file, content.decode("utf-8"))
    except OSError as error:
        raise RunFailedError(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: expected UTF-8, found byte {error.start} that isn't") from None


def _templates_in(config: JsonObject) -> tuple[ChatTemplate, ...]:
    """One text, or a list of named ones."""
    if isinstance(config.values.get(_TEMPLATE_KEY), list):
        named = {
            entry.text("name") or "": entry.text("template") or ""
            for entry in config.children(_TEMPLATE_KEY)
        }
        names = sorted(named, key=lambda name: name != _DEFAULT_TEMPLATE)
    else:
        named = {_DEFAULT_TEMPLATE: config.text(_TEMPLATE_KEY) or ""}
        names = [_DEFAULT_TEMPLATE]
    return tuple(
        ChatTemplate(
            file=config.file,
            source=_checked_source(config.file, named[name]),
            is_default=name == _DEFAULT_TEMPLATE,
        )
        for name in names
        if named[name]
    )


def _checked_source(file: Path, source: str) -> str:
    if len(source.encode()) > MAX_TEMPLATE_BYTES:
        raise UsageError(
            f"{file}: expected a chat template of at most {MAX_TEMPLATE_BYTES} bytes, found more; "
            "fetch the checkpoint again"
        )
    return source


def _read_special_tokens(config: JsonObject) -> dict[str, str]:
    """Tokens are written as texts, or as objects that say how they are matched."""
    named = {key: value for key, value in config.values.items() if key.endswith("_token")}
    contents = {
        key: value.get("content") if isinstance(value, dict) else value
        for key, value in named.items()
    }
    return {key: value for key, value in contents.items() if isinstance(value, str)}


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
