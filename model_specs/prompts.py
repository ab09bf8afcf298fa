"""What config_sentence_transformers.json says: class, prompts, similarity, activation of scores."""

from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.manifest import Prompts
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_object

_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
EMBEDDING_MODEL_TYPE = "SentenceTransformer"
SPARSE_ENCODER_TYPE = "SparseEncoder"
CROSS_ENCODER_TYPE = "CrossEncoder"
MULTI_VECTOR_TYPE = "MultiVectorEncoder"
PYLATE_TYPE = "ColBERT"
_MODEL_TYPES = (
    EMBEDDING_MODEL_TYPE,
    SPARSE_ENCODER_TYPE,
    CROSS_ENCODER_TYPE,
    MULTI_VECTOR_TYPE,
    PYLATE_TYPE,
)
_PYLATE_KEY = "query_prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceTransformersConfig:
    """What sentence-transformers stores about the use of a checkpoint.

    Attributes:
        file: the file that was read.
        prompts: named prefixes and the name of the default one.
        similarity: "cosine", "dot", "euclidean", "manhattan" or None; another function where the
            class is another one.
        model_type: "SentenceTransformer", or another class such as "SparseEncoder"; None = not
            stated.
        activation: dotted class name of what makes scores of logits, None where not stated.
    """

    file: Path
    prompts: Prompts
    similarity: str | None
    model_type: str | None
    activation: str | None


def read_sentence_transformers_config(file: Path) -> SentenceTransformersConfig | None:
    """Read config_sentence_transformers.json, None when there is none.

    Raises:
        UsageError: a key has a wrong type, the class is unknown, or the default prompt isn't among
            the prompts.
        RunFailedError: the file can't be read.
    """
    if not is_present(file):
        return None
    config = read_object(file)
    similarity, model_type = config.text("similarity_fn_name"), _read_model_type(config)
    is_embedding = model_type in (None, EMBEDDING_MODEL_TYPE)
    if is_embedding and similarity not in (None, *_SIMILARITIES):
        config.refuse("similarity_fn_name", f"one of {', '.join(_SIMILARITIES)}")
    return SentenceTransformersConfig(
        file=file,
        prompts=_read_prompts(config),
        similarity=similarity,
        model_type=model_type,
        activation=config.text("activation_fn"),
    )


def _read_model_type(config: JsonObject) -> str | None:
    stated = config.text("model_type")
    if stated not in (None, *_MODEL_TYPES):
        config.refuse("model_type", f"one of {', '.join(_MODEL_TYPES)}")
    # The first releases of PyLate stated no class.
    return PYLATE_TYPE if stated is None and _PYLATE_KEY in config.values else stated


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
