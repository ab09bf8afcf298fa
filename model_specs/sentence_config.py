"""What the `sentence_*_config.json` of sentence-transformers says of the input text."""

from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_object, shown

FILE_NAMES = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)
"""In the order in which they are looked for; the first one present counts."""

_MAX_TOKENS = 10**9
_ACCEPTED = {"transformer_task": "feature-extraction", "module_output_name": "token_embeddings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceConfig:
    """Limits on the input.

    Attributes:
        file: the file that was read.
        max_seq_length: longest input in tokens, special tokens included; None = not stated.
        do_lower_case: lower the text before tokenising, also where the tokenizer itself doesn't.
    """

    file: Path
    max_seq_length: int | None
    do_lower_case: bool


def read_sentence_config(folder: Path) -> SentenceConfig | None:
    """Read the first present of `FILE_NAMES`, None when there is none.

    Raises:
        UsageError: a key has a wrong type, or asks for more than token vectors of a text encoder.
        RunFailedError: the file can't be read.
    """
    file = next((folder / name for name in FILE_NAMES if is_present(folder / name)), None)
    if file is None:
        return None
    config = read_object(file)
    _refuse_other_tasks(config)
    return SentenceConfig(
        file=file,
        max_seq_length=config.integer("max_seq_length", minimum=1, maximum=_MAX_TOKENS),
        do_lower_case=config.flag("do_lower_case", default=False),
    )


def _refuse_other_tasks(config: JsonObject) -> None:
    for key, accepted in _ACCEPTED.items():
        value = config.text(key)
        if value not in (None, accepted):
            raise UsageError(
                f"{config.where(key)}: expected {shown(accepted)}, found {shown(value)}; "
                "this release compiles text encoders for embeddings only"
            )
