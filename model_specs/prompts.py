"""Named prompts and the similarity function, from config_sentence_transformers.json."""

from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.manifest import Prompts
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_object

_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
EMBEDDING_MODEL_TYPE = "SentenceTransformer"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceTransformersConfig:
    """What sentence-transformers stores about the use of a checkpoint.

    Attributes:
        file: the file that was read.
        prompts: named prefixes and the name of the default one.
        similarity: "cosine", "dot", "euclidean", "manhattan" or None.
        model_type: "SentenceTransformer", or another class such as "SparseEncoder".
    """

    file: Path
    prompts: Prompts
    similarity: str | None
    model_type: str


def read_sentence_transformers_config(file: Path) -> SentenceTransformersConfig | None:
    """Read config_sentence_transformers.json, None when there is none.

    Raises:
        UsageError: a key has a wrong type, or the default prompt isn't among the prompts.
        RunFailedError: the file can't be read.
    """
    if not is_present(file):
        return None
    config = read_object(file)
    similarity = config.text("similarity_fn_name")
    model_type = config.text("model_type") or EMBEDDING_MODEL_TYPE
    if similarity not in (None, *_SIMILARITIES) and model_type == EMBEDDING_MODEL_TYPE:
        config.refuse("similarity_fn_name", f"one of {', '.join(_SIMILARITIES)}")
    return SentenceTransformersConfig(
        file=file, prompts=_read_prompts(config), similarity=similarity, model_type=model_type
    )


def _read_prompts(config: JsonObject) -> Prompts:
    table = config.child("prompts")
    named = {} if table is None else {name: _read_prompt(table, name) for name in table.values}
    default = config.text("default_prompt_name")
    if default is not None and default not in named:
        names = ", ".join(sorted(named)) or "none are there"
        config.refuse("default_prompt_name", f"the name of a prompt ({names})")
    return Prompts(named=named, default=default)


def _read_prompt(table: JsonObject, name: str) -> str:
    prompt = table.text(name)
    if prompt is None:
        table.refuse(name, "a text")
    return prompt
