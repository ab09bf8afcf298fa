"""The supported families, and which one a checkpoint belongs to.

Owns the sentences that say why a checkpoint's family can't be compiled. Reads no files.
"""

import difflib

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.bert import BERT
from infinity_v3.model_specs.camembert import CAMEMBERT
from infinity_v3.model_specs.deberta_v2 import DEBERTA_V2
from infinity_v3.model_specs.distilbert import DISTILBERT
from infinity_v3.model_specs.eurobert import EUROBERT
from infinity_v3.model_specs.gemma2 import GEMMA2
from infinity_v3.model_specs.gemma3 import GEMMA3
from infinity_v3.model_specs.gte import GTE
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.jina_bert_v2 import JINA_BERT_V2
from infinity_v3.model_specs.jina_v3 import JINA_V3
from infinity_v3.model_specs.json_file import shown
from infinity_v3.model_specs.llama import LLAMA
from infinity_v3.model_specs.ministral import MINISTRAL
from infinity_v3.model_specs.ministral3 import MINISTRAL3
from infinity_v3.model_specs.mistral import MISTRAL
from infinity_v3.model_specs.modernbert import MODERNBERT
from infinity_v3.model_specs.mpnet import MPNET
from infinity_v3.model_specs.nomic_bert import NOMIC_BERT
from infinity_v3.model_specs.nomic_bert_moe import NOMIC_BERT_MOE
from infinity_v3.model_specs.qwen2 import QWEN2
from infinity_v3.model_specs.qwen3 import QWEN3
from infinity_v3.model_specs.qwen3_moe import QWEN3_MOE
from infinity_v3.model_specs.roberta import ROBERTA
from infinity_v3.model_specs.spec import ModelSpec
from infinity_v3.model_specs.transformer_config import TransformerConfig
from infinity_v3.model_specs.ultrabert import ULTRABERT
from infinity_v3.model_specs.xlm_roberta import XLM_ROBERTA

SPECS: tuple[ModelSpec, ...] = (
    BERT,
    ROBERTA,
    XLM_ROBERTA,
    CAMEMBERT,
    DISTILBERT,
    MPNET,
    DEBERTA_V2,
    MODERNBERT,
    ULTRABERT,
    EUROBERT,
    NOMIC_BERT,
    NOMIC_BERT_MOE,
    GTE,
    JINA_BERT_V2,
    JINA_V3,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
    LLAMA,
    MISTRAL,
    MINISTRAL,
    MINISTRAL3,
    GEMMA2,
    GEMMA3,
)
"""Every supported family."""

_REQUIRED_SIZES = (
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
_COMPILED_POSITIONS = (None, "absolute", "rope", "rotary", "alibi")
_JINA_ARCHITECTURES = ("JinaBert",)


def match(config: HubConfig) -> ModelSpec:
    """Choose the family of a checkpoint and check that its encoder can be compiled.

    Returns:
        The family; the checkpoint's sizes are there and consistent.

    Raises:
        UsageError: another family or feature than this release compiles; the sentence names it.
    """
    spec = find_family(config.model)
    _refuse_features(config.model, spec)
    _check_sizes(config.model)
    return spec


def find_family(model: TransformerConfig) -> ModelSpec:
    """The family that a config.json belongs to.

    Raises:
        UsageError: none; the sentence names the nearest supported model types.
    """
    for spec in SPECS:
        if model.model_type in spec.model_types:
            return _published_variant(model) or spec
    names = [name for spec in SPECS for name in spec.model_types]
    near = difflib.get_close_matches(model.model_type[:100], names, n=3, cutoff=0.5) or names
    raise UsageError(
        f"{model.file}: model_type {shown(model.model_type)} is not supported; "
        f"nearest supported: {', '.join(near)}"
    )


def pad_token_id(config: HubConfig, spec: ModelSpec) -> int:
    """The padding id of the checkpoint, or what its family assumes."""
    stated = config.model.pad_token_id
    return spec.default_pad_token_id if stated is None else stated


def attends_causally(config: HubConfig, spec: ModelSpec) -> bool:
    """Whether attention sees only the past."""
    return spec.is_causal and not config.model.is_bidirectional


def _published_variant(model: TransformerConfig) -> ModelSpec | None:
    """Families that were published under the model type of another one."""
    is_jina = (model.architecture or "").startswith(_JINA_ARCHITECTURES)
    if model.model_type == "bert" and (is_jina or model.position_embedding_type == "alibi"):
        return JINA_BERT_V2
    if model.model_type == "nomic_bert" and model.has_experts:
        return NOMIC_BERT_MOE
    return None


def _refuse_features(model: TransformerConfig, spec: ModelSpec) -> None:
    if spec is XLM_ROBERTA and model.position_embedding_type == "rotary":
        raise UsageError(
            f"{model.file}: position_embedding_type: expected absolute for xlm-roberta, found "
            "rotary: this is a first release of Jina embeddings v3, which brings Python code; "
            "compile its conversion jinaai/jina-embeddings-v3-hf"
        )
    if model.has_own_code and not spec.is_built_in:
        raise UsageError(
            f"{model.file}: auto_map: expected a model of transformers itself, found one with "
            "Python code of its own; this release runs no code of a checkpoint"
        )
    if model.is_decoder and not spec.is_causal:
        raise UsageError(
            f"{model.file}: is_decoder: expected false, found true; {spec.family} is compiled as "
            "an encoder"
        )
    if model.is_quantized:
        raise UsageError(
            f"{model.file}: quantization_config: expected plain weights, found quantised ones; "
            "compile the original checkpoint"
        )
    if model.position_embedding_type not in _COMPILED_POSITIONS:
        raise UsageError(
            f"{model.file}: position_embedding_type: expected absolute, "
            f"found {shown(model.position_embedding_type)}, which this release does not compile"
        )


def _check_sizes(model: TransformerConfig) -> None:
    for name in _REQUIRED_SIZES:
        if getattr(model, name) < 1:
            raise UsageError(f"{model.file}: {name}: expected at least 1, found 0")
    heads = model.num_attention_heads
    if model.head_dim is None and model.hidden_size % heads:
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
