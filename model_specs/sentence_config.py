"""What the `sentence_*_config.json` of sentence-transformers says of the input text."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_object, shown
from infinity_v3.model_specs.prompts import (
    CROSS_ENCODER_TYPE,
    EMBEDDING_MODEL_TYPE,
    SPARSE_ENCODER_TYPE,
)

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

MESSAGE = "message"
_MAX_TOKENS = 10**9
_TASK_KEY, _OUTPUT_KEY = "transformer_task", "module_output_name"
_TOKEN_VECTORS = {_TASK_KEY: ("feature-extraction",), _OUTPUT_KEY: ("token_embeddings",)}
_ACCEPTED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    SPARSE_ENCODER_TYPE: {_TASK_KEY: ("fill-mask",), _OUTPUT_KEY: ("token_embeddings",)},
    CROSS_ENCODER_TYPE: {
        _TASK_KEY: ("sequence-classification", "text-generation"),
        _OUTPUT_KEY: ("scores", "causal_logits"),
    },
}
"""What the transformer may give, per class that is not about token vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceConfig:
    """Limits on the input, and how it is written.

    Attributes:
        file: the file that was read.
        max_seq_length: longest input in tokens, special tokens included; None = not stated.
        do_lower_case: lower the text before tokenising, also where the tokenizer itself doesn't.
        takes_messages: inputs are conversations, which a chat template turns into text.
        template_variables: what the chat template is given beside the conversation.
    """

    file: Path
    max_seq_length: int | None
    do_lower_case: bool
    takes_messages: bool
    template_variables: Mapping[str, object]


def read_sentence_config(
    folder: Path, model_class: str = EMBEDDING_MODEL_TYPE
) -> SentenceConfig | None:
    """Read the first present of `FILE_NAMES`, None when there is none.

    Args:
        folder: where config.json lies.
        model_class: the class of sentence-transformers, which decides what the transformer gives.

    Raises:
        UsageError: a key has a wrong type, or asks for something else than the class needs.
        RunFailedError: the file can't be read.
    """
    file = next((folder / name for name in FILE_NAMES if is_present(folder / name)), None)
    if file is None:
        return None
    config = read_object(file)
    _refuse_other_tasks(config, _ACCEPTED.get(model_class, _TOKEN_VECTORS))
    modalities, processing = config.child("modality_config"), config.child("processing_kwargs")
    template = processing.child("chat_template") if processing else None
    return SentenceConfig(
        file=file,
        max_seq_length=config.integer("max_seq_length", minimum=1, maximum=_MAX_TOKENS),
        do_lower_case=config.flag("do_lower_case", default=False),
        takes_messages=modalities is not None and modalities.has(MESSAGE),
        template_variables=template.values if template else {},
    )


def _refuse_other_tasks(config: JsonObject, accepted: Mapping[str, tuple[str, ...]]) -> None:
    for key, values in accepted.items():
        value = config.text(key)
        if value not in (None, *values):
            expected = " or ".join(shown(accepted_value) for accepted_value in values)
            raise UsageError(
                f"{config.where(key)}: expected {expected}, found {shown(value)}; this release "
                "compiles no such use of a text encoder"
            )
