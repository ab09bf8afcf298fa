"""Writes tiny checkpoints of retrievers and rerankers in the layouts that public models use.

Owns the files around the model: modules, metadata, templates. The model itself comes from
`tiny_checkpoints`. Knows nothing of the product.
"""

import json
import string
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder

from tiny_checkpoints import IDENTITY, make_tiny_checkpoint, set_json_key, write_json
from tiny_families import CAUSAL_LM, MASKED_LM, SEQUENCE, TINY_FAMILIES
from tiny_templates import QWEN_PAIR_TEMPLATE
from tiny_tokenizers import TinyTokenizer, build_tokenizer

COLBERT_LAYOUTS = ("pylate", "stanford", "sentence-transformers")
SIGMOID = "torch.nn.modules.activation.Sigmoid"
_VOCABULARY_BIASES = (
    "cls.predictions.bias",
    "vocab_projector.bias",
    "lm_head.bias",
    "decoder.bias",
)
_SPARSITY = 4.0
_BODY_PREFIXES = {"bert": "bert.", "xlm-roberta": "roberta.", "modernbert": "model."}


@dataclass(frozen=True, kw_only=True)
class ColbertTraits:
    """What a late-interaction checkpoint says beside its weights.

    Attributes:
        dim: width of a token vector.
        query_prefix: token in front of a query; the Stanford layout knows "[unused0]".
        document_prefix: token in front of a document; the Stanford layout knows "[unused1]".
        query_length: tokens of a query, the expansion included.
        document_length: tokens of a document at most.
        expand_queries: fill a query up with mask tokens.
        attend_to_expansion: let the other tokens see them.
        skip_punctuation: leave punctuation out of documents.
    """

    dim: int = 24
    query_prefix: str = "[Q] "
    document_prefix: str = "[D] "
    query_length: int = 16
    document_length: int = 48
    expand_queries: bool = True
    attend_to_expansion: bool = False
    skip_punctuation: bool = True


STANFORD_TRAITS = {
    "bert": ColbertTraits(query_prefix="[unused0]", document_prefix="[unused1]"),
    "modernbert": ColbertTraits(query_prefix="[unused0]", document_prefix="[unused1]"),
    "xlm-roberta": ColbertTraits(
        query_prefix="[QueryMarker]",
        document_prefix="[DocumentMarker]",
        attend_to_expansion=True,
        skip_punctuation=False,
    ),
}
"""The families of that layout, with their usual markers."""


def make_colbert_checkpoint(
    family: str,
    path: Path,
    *,
    layout: str = "pylate",
    seed: int = 0,
    traits: ColbertTraits | None = None,
) -> Path:
    """Write a late-interaction checkpoint that sentence-transformers' MultiVectorEncoder loads.

    Args:
        family: an encoder of `tiny_families.TINY_FAMILIES`; Stanford's layout is there for the
            families of `STANFORD_TRAITS`.
        path: directory to write.
        layout: one of `COLBERT_LAYOUTS`.
        seed: decides every weight.
        traits: default the layout's usual ones.
    """
    if layout == "stanford":
        return _make_stanford(family, path, seed, traits or STANFORD_TRAITS[family])
    traits = traits or ColbertTraits()
    if layout == "pylate":
        return _make_pylate(family, path, seed, traits)
    with tempfile.TemporaryDirectory() as folder:
        source = _make_pylate(family, Path(folder), seed, traits)
        model = MultiVectorEncoder(str(source), device="cpu")
        model.save_pretrained(str(path), create_model_card=False)
    return path


def make_splade_checkpoint(
    family: str, path: Path, *, seed: int = 0, modules: bool = True, pooling: str = "max"
) -> Path:
    """Write a SPLADE checkpoint: a masked language model, whose logits are pooled.

    Args:
        family: one that has a MaskedLM head, e.g. bert or distilbert.
        path: directory to write.
        seed: decides every weight.
        modules: write sentence-transformers' modules; else the bare model.
        pooling: "max" or "sum".
    """
    make_tiny_checkpoint(family, path, head=MASKED_LM, pooling=None, seed=seed)
    _lower_vocabulary_bias(path / "model.safetensors")
    if not modules:
        return path
    types = (
        ("", "sentence_transformers.sparse_encoder.models.MLMTransformer"),
        ("1_SpladePooling", "sentence_transformers.sparse_encoder.models.SpladePooling"),
    )
    _write_modules(path, types)
    rows = build_tokenizer(TINY_FAMILIES[family].tokenizer).vocab_size
    (path / "1_SpladePooling").mkdir(exist_ok=True)
    config = {"pooling_strategy": pooling, "activation_function": "relu"}
    write_json(
        path / "1_SpladePooling" / "config.json", {**config, "word_embedding_dimension": rows}
    )
    write_json(path / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": False})
    _write_library_config(path, "SparseEncoder", {"similarity_fn_name": "dot"})
    return path


def make_reranker_checkpoint(
    family: str,
    path: Path,
    *,
    seed: int = 0,
    labels: Sequence[str] = ("LABEL_0",),
    activation: str | None = IDENTITY,
    template: str | None = None,
) -> Path:
    """Write a reranker: sequence classification of pairs, as CrossEncoder models are published.

    Args:
        family: one that has a SequenceClassification head.
        path: directory to write.
        seed: decides every weight.
        labels: of the head; rerankers have one.
        activation: dotted class name in config.json; None says nothing, so that the library's
            default holds: a sigmoid for one label.
        template: a chat template with the roles query and document, instead of the tokenizer's
            own; see `tiny_templates`.
    """
    config = {} if activation is None else {"sentence_transformers": _reranker_note(activation)}
    make_tiny_checkpoint(
        family, path, head=SEQUENCE, pooling=None, seed=seed, labels=labels, config=config
    )
    if template is not None:
        set_json_key(path / "tokenizer_config.json", "chat_template", template)
    return path


def make_yes_no_reranker_checkpoint(
    family: str, path: Path, *, seed: int = 0, modules: bool = False
) -> Path:
    """Write a reranker that answers "yes" or "no": a causal language model with a chat template.

    Args:
        family: a decoder with a CausalLM head, e.g. qwen3.
        path: directory to write.
        seed: decides every weight.
        modules: write sentence-transformers' modules with their LogitScore and a chat template of
            pairs; else the bare model, whose chat template knows no pairs.
    """
    make_tiny_checkpoint(family, path, head=CAUSAL_LM, pooling=None, seed=seed)
    if modules:
        set_json_key(path / "tokenizer_config.json", "chat_template", QWEN_PAIR_TEMPLATE)
        _write_logit_score(path, build_tokenizer(TINY_FAMILIES[family].tokenizer))
    return path


def _lower_vocabulary_bias(file: Path) -> None:
    # Random logits are positive half of the time; a sparse vector has few entries.
    tensors = load_file(file)
    for name, tensor in tensors.items():
        if name in _VOCABULARY_BIASES:
            tensors[name] = tensor - _SPARSITY
    save_file(tensors, file, {"format": "pt"})


def _write_logit_score(path: Path, tokenizer: TinyTokenizer) -> None:
    types = (
        ("", "sentence_transformers.base.modules.transformer.Transformer"),
        ("1_LogitScore", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"),
    )
    _write_modules(path, types)
    (path / "1_LogitScore").mkdir(exist_ok=True)
    answers = {
        "true_token_id": tokenizer.backend.token_to_id("yes"),
        "false_token_id": tokenizer.backend.token_to_id("no"),
    }
    write_json(
        path / "1_LogitScore" / "config.json", {**answers, "module_input_name": "causal_logits"}
    )
    forward = {"method": "forward", "method_output_name": "logits"}
    modalities = {"text": forward, "message": {**forward, "format": "flat"}}
    task = {"transformer_task": "text-generation", "module_output_name": "causal_logits"}
    write_json(path / "sentence_bert_config.json", {**task, "modality_config": modalities})
    _write_library_config(path, "CrossEncoder", {"activation_fn": SIGMOID})


def _reranker_note(activation: str) -> Mapping[str, str]:
    return {"activation_fn": activation, "version": "5.2.0"}


def _make_pylate(family: str, path: Path, seed: int, traits: ColbertTraits) -> Path:
    markers = (traits.query_prefix, traits.document_prefix)
    make_tiny_checkpoint(family, path, pooling=None, seed=seed, added_tokens=markers)
    _write_modules(
        path,
        (
            ("", "sentence_transformers.models.Transformer"),
            ("1_Dense", "pylate.models.Dense.Dense"),
        ),
    )
    weight = _projection(path, traits.dim, seed)
    (path / "1_Dense").mkdir(exist_ok=True)
    save_file({"linear.weight": weight}, path / "1_Dense" / "model.safetensors")
    write_json(
        path / "1_Dense" / "config.json",
        {
            "in_features": weight.shape[1],
            "out_features": traits.dim,
            "bias": False,
            "activation_function": IDENTITY,
        },
    )
    limit = {"max_seq_length": traits.document_length - 1, "do_lower_case": False}
    write_json(path / "sentence_bert_config.json", limit)
    _write_library_config(path, "ColBERT", _pylate_values(traits))
    return path


def _pylate_values(traits: ColbertTraits) -> Mapping[str, object]:
    return {
        "similarity_fn_name": "MaxSim",
        "query_prefix": traits.query_prefix,
        "document_prefix": traits.document_prefix,
        "query_length": traits.query_length,
        "document_length": traits.document_length,
        "attend_to_expansion_tokens": traits.attend_to_expansion,
        "skiplist_words": list(string.punctuation) if traits.skip_punctuation else [],
        "do_query_expansion": traits.expand_queries,
    }


def _make_stanford(family: str, path: Path, seed: int, traits: ColbertTraits) -> Path:
    # BERT's unused rows are ordinary pieces of the vocabulary; other tokenizers add their markers.
    own = family == "bert"
    make_tiny_checkpoint(
        family,
        path,
        pooling=None,
        seed=seed,
        tokenizer="colbert" if own else None,
        added_tokens=() if own else (traits.query_prefix, traits.document_prefix),
    )
    file = path / "model.safetensors"
    prefix = _BODY_PREFIXES[family]
    tensors = {prefix + name: tensor for name, tensor in load_file(file).items()}
    weight = _projection(path, traits.dim, seed)
    save_file({**tensors, "linear.weight": weight}, file, {"format": "pt"})
    document = json.loads((path / "config.json").read_text(encoding="utf-8"))
    write_json(path / "config.json", {**document, "architectures": ["HF_ColBERT"]})
    write_json(path / "artifact.metadata", _stanford_values(traits))
    return path


def _stanford_values(traits: ColbertTraits) -> Mapping[str, object]:
    return {
        "query_token_id": traits.query_prefix,
        "doc_token_id": traits.document_prefix,
        "query_token": "[Q]",
        "doc_token": "[D]",
        "query_maxlen": traits.query_length,
        "doc_maxlen": traits.document_length,
        "dim": traits.dim,
        "similarity": "cosine",
        "mask_punctuation": traits.skip_punctuation,
        "attend_to_mask_tokens": traits.attend_to_expansion,
        "interaction": "colbert",
    }


def _projection(path: Path, dim: int, seed: int) -> torch.Tensor:
    document = json.loads((path / "config.json").read_text(encoding="utf-8"))
    width = document.get("hidden_size") or document["dim"]
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn((dim, width), generator=generator) * 0.2


def _write_modules(path: Path, rows: Sequence[tuple[str, str]]) -> None:
    document = [
        {"idx": index, "name": str(index), "path": folder, "type": kind}
        for index, (folder, kind) in enumerate(rows)
    ]
    write_json(path / "modules.json", document)


def _write_library_config(path: Path, model_type: str, values: Mapping[str, object]) -> None:
    document = {
        "__version__": {"sentence_transformers": "5.2.0"},
        "model_type": model_type,
        "prompts": {},
        "default_prompt_name": None,
    }
    write_json(path / "config_sentence_transformers.json", {**document, **values})
