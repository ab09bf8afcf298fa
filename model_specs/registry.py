"""The supported families, and which one a checkpoint belongs to.

Owns the sentences that say why a checkpoint can't be compiled. Reads no files.
"""

import difflib

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.model_specs.bert import BERT
from infinity_v3.model_specs.camembert import CAMEMBERT
from infinity_v3.model_specs.distilbert import DISTILBERT
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.json_file import shown
from infinity_v3.model_specs.prompts import EMBEDDING_MODEL_TYPE
from infinity_v3.model_specs.roberta import ROBERTA
from infinity_v3.model_specs.spec import ModelSpec
from infinity_v3.model_specs.transformer_config import TransformerConfig
from infinity_v3.model_specs.xlm_roberta import XLM_ROBERTA

SPECS: tuple[ModelSpec, ...] = (BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT)
"""Every supported family."""

_GENERATIVE_HEADS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_GENERATIVE_TYPES = (
    "bart", "bloom", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "llama",
    "mistral", "mixtral", "mt5", "olmo2", "opt", "phi", "phi3", "qwen2", "qwen3", "t5",
)  # fmt: skip
# Heads that the encoder was trained with: leaving them off leaves the encoder.
_TRAINING_HEADS = ("ForMaskedLM", "ForPreTraining", "ForNextSentencePrediction")
_REQUIRED_SIZES = (
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)


def match(config: HubConfig, *, task: Kind | None = None) -> ModelSpec:
    """Choose the family of a checkpoint and check that its encoder can be compiled for embeddings.

    Args:
        config: the checkpoint.
        task: what the user asked for; None = the checkpoint must say it itself.

    Returns:
        The family; the checkpoint's sizes are there and consistent.

    Raises:
        UsageError: another task, family, head or feature than this release compiles; the sentence
            names it.
    """
    _refuse_other_tasks(config, task)
    _refuse_unasked_generation(config, task)
    spec = _find_family(config.model)
    _refuse_other_heads(config, spec, task)
    _refuse_features(config.model)
    _check_sizes(config.model)
    return spec


def pad_token_id(config: HubConfig, spec: ModelSpec) -> int:
    """The padding id of the checkpoint, or what its family assumes."""
    stated = config.model.pad_token_id
    return spec.default_pad_token_id if stated is None else stated


def _refuse_other_tasks(config: HubConfig, task: Kind | None) -> None:
    if task not in (None, Kind.EMBEDDING):
        raise UsageError(
            f"--task: expected embedding, found {task.value}; "
            "this release compiles embedding models"
        )
    if config.model_class != EMBEDDING_MODEL_TYPE:
        raise UsageError(
            f"{config.path}: expected a checkpoint of {EMBEDDING_MODEL_TYPE}, found one of "
            f"{shown(config.model_class)}; this release compiles embedding models"
        )


def _refuse_unasked_generation(config: HubConfig, task: Kind | None) -> None:
    model = config.model
    is_said = task is not None or config.modules is not None
    is_generative = (
        model.is_decoder
        or model.model_type in _GENERATIVE_TYPES
        or (model.architecture or "").endswith(_GENERATIVE_HEADS)
    )
    if is_generative and not is_said:
        raise UsageError(
            f"{model.file}: {shown(model.architecture or model.model_type)} is generative and does "
            "not say what to make of it: give --task; this release compiles "
            f"{', '.join(_family_names())} for embedding"
        )


def _find_family(model: TransformerConfig) -> ModelSpec:
    for spec in SPECS:
        if model.model_type in spec.model_types:
            return spec
    names = _family_names()
    near = difflib.get_close_matches(model.model_type[:100], names, n=3, cutoff=0.5) or names
    raise UsageError(
        f"{model.file}: model_type {shown(model.model_type)} is not supported; "
        f"nearest supported: {', '.join(near)}"
    )


def _family_names() -> list[str]:
    return [name for spec in SPECS for name in spec.model_types]


def _refuse_other_heads(config: HubConfig, spec: ModelSpec, task: Kind | None) -> None:
    model, bare = config.model, f"{spec.architectures[0]}Model"
    if model.architecture is None:
        return
    head = _head_of(model.architecture, spec)
    name = f"{model.file}: architectures: {shown(model.architecture)}"
    if head is None:
        raise UsageError(f"{name} is no {spec.family} model; expected a class such as {bare}")
    is_said = task is not None or config.modules is not None
    if head in _TRAINING_HEADS and not is_said:
        raise UsageError(
            f"{name} is a pre-training checkpoint and does not say that it embeds; "
            "compile its encoder with --task embedding"
        )
    if head not in (*_TRAINING_HEADS, "Model"):
        raise UsageError(
            f"{name} is not supported: this release compiles embedding models, that is {bare}"
        )


def _head_of(architecture: str, spec: ModelSpec) -> str | None:
    prefix = next(
        (prefix for prefix in spec.architectures if architecture.startswith(prefix)), None
    )
    head = architecture.removeprefix(prefix) if prefix else ""
    return head if head == "Model" or head.startswith(("For", "LMHead")) else None


def _refuse_features(model: TransformerConfig) -> None:
    if model.has_own_code:
        raise UsageError(
            f"{model.file}: auto_map: expected a model of transformers itself, found one with "
            "Python code of its own; this release runs no code of a checkpoint"
        )
    if model.is_decoder:
        raise UsageError(
            f"{model.file}: is_decoder: expected false, found true; this release compiles encoders"
        )
    if model.is_quantized:
        raise UsageError(
            f"{model.file}: quantization_config: expected plain weights, found quantised ones; "
            "compile the original checkpoint"
        )
    if model.position_embedding_type not in (None, "absolute"):
        raise UsageError(
            f"{model.file}: position_embedding_type: expected absolute, "
            f"found {shown(model.position_embedding_type)}, which this release does not compile"
        )


def _check_sizes(model: TransformerConfig) -> None:
    for name in _REQUIRED_SIZES:
        if getattr(model, name) < 1:
            raise UsageError(f"{model.file}: {name}: expected at least 1, found 0")
    heads = model.num_attention_heads
    if model.hidden_size % heads:
        raise UsageError(
            f"{model.file}: hidden_size: expected a multiple of the {heads} attention heads, "
            f"found {model.hidden_size}"
        )
    padding = model.pad_token_id
    if padding is not None and not 0 <= padding < model.vocab_size:
        raise UsageError(
            f"{model.file}: pad_token_id: expected an id below vocab_size {model.vocab_size}, "
            f"found {padding}"
        )
