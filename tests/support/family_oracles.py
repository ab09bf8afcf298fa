"""What other libraries make of a checkpoint: transformers eager in float32, one text at a time.

Owns the calls into transformers and sentence-transformers, and the translation of the two config
spellings that transformers does not know. Knows nothing of the product.
"""

import inspect
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from sentence_transformers import (
    CrossEncoder,
    MultiVectorEncoder,
    SentenceTransformer,
    SparseEncoder,
)
from tokenizers import Tokenizer
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
    TokenClassificationPipeline,
)

from reference_library import load_reference_tokenizer
from tiny_bpe import token_id
from tiny_families import CAUSAL_LM, MASKED_LM, SEQUENCE, TOKEN

_LOADERS: Mapping[str | None, type] = {
    None: AutoModel,
    MASKED_LM: AutoModelForMaskedLM,
    SEQUENCE: AutoModelForSequenceClassification,
    TOKEN: AutoModelForTokenClassification,
    CAUSAL_LM: AutoModelForCausalLM,
}
EAGER = {"attn_implementation": "eager"}
"""transformers' plainest attention."""

Text = str | tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """One text, or a pair, as token ids and token types."""

    ids: Sequence[int]
    types: Sequence[int]


def token_rows(path: Path, texts: Iterable[Text], *, special_tokens: bool = True) -> list[TokenRow]:
    """Tokenise with the checkpoint's tokenizer.json, by default with special tokens around."""
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encodings = [
        tokenizer.encode(*_one_or_two(text), add_special_tokens=special_tokens) for text in texts
    ]
    return [TokenRow(ids=encoding.ids, types=encoding.type_ids) for encoding in encodings]


def chat_rows(
    path: Path, pairs: Iterable[tuple[str, str]], *, instruction: str | None = None
) -> list[TokenRow]:
    """Pairs as the checkpoint's chat template renders the roles system, query and document.

    No special tokens are put around: the template has those that it wants.
    """
    tokenizer = load_reference_tokenizer(path)
    system = [] if instruction is None else [{"role": "system", "content": instruction}]
    conversations = [
        [*system, {"role": "query", "content": query}, {"role": "document", "content": document}]
        for query, document in pairs
    ]
    texts = [
        tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
        for conversation in conversations
    ]
    return token_rows(path, [str(text) for text in texts], special_tokens=False)


def _one_or_two(text: Text) -> tuple[str, str | None]:
    return (text, None) if isinstance(text, str) else text


def reference_config(path: Path, overrides: Mapping[str, object] | None = None) -> PreTrainedConfig:
    """config.json as transformers understands it; `overrides` are set before it is read."""
    document = _translated(json.loads((path / "config.json").read_text(encoding="utf-8")))
    document = {**document, **(overrides or {})}
    model_type = str(document.pop("model_type"))
    config: PreTrainedConfig = AutoConfig.for_model(model_type, **document)
    return config


def load_reference(
    path: Path, head: str | None = None, overrides: Mapping[str, object] | None = None
) -> PreTrainedModel:
    """Transformers' model of a checkpoint, eager, in float32, in evaluation mode.

    Args:
        path: of the checkpoint.
        head: as in `tiny_families`; None for the bare model.
        overrides: values over config.json.
    """
    config = reference_config(path, overrides)
    options: dict[str, object] = {"config": config, "dtype": torch.float32, **EAGER}
    if hasattr(config, "num_experts_per_tok"):
        options["experts_implementation"] = "eager"
    model: PreTrainedModel = _LOADERS[head].from_pretrained(  # type: ignore[attr-defined]
        path, **options
    )
    model.train(mode=False)
    return model


def loading_problems(path: Path, head: str | None = None) -> dict[str, list[str]]:
    """What of the checkpoint transformers missed, did not expect, or found of another shape."""
    _, info = _LOADERS[head].from_pretrained(  # type: ignore[attr-defined]
        path, config=reference_config(path), output_loading_info=True
    )
    kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
    return {kind: sorted(map(str, info[kind])) for kind in kinds if info[kind]}


def run(model: PreTrainedModel, row: TokenRow, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """One text through a model, without padding: every output of one row, without the row axis."""
    with torch.inference_mode():
        outputs = model(**model_inputs(model, row), **inputs)
    return {name: value[0] for name, value in outputs.items() if isinstance(value, torch.Tensor)}


def model_inputs(model: PreTrainedModel, row: TokenRow) -> dict[str, torch.Tensor]:
    """Ids, a mask of ones, and token types where the model tells them apart."""
    ids = torch.tensor([list(row.ids)])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    accepts_types = "token_type_ids" in inspect.signature(model.forward).parameters
    if accepts_types and getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = torch.tensor([list(row.types)])
    return inputs


def hidden_states(path: Path, rows: Iterable[TokenRow]) -> list[torch.Tensor]:
    """Last hidden states: one (tokens, width) per row."""
    model = load_reference(path)
    return [run(model, row)["last_hidden_state"] for row in rows]


def sequence_logits(path: Path, rows: Iterable[TokenRow]) -> torch.Tensor:
    """Logits of the sequence classification head: (rows, labels)."""
    model = load_reference(path, SEQUENCE)
    # transformers keeps no temperature in a loaded configuration.
    document = json.loads((path / "config.json").read_text(encoding="utf-8"))
    if document.get("pooling") == "avg":
        temperature = float(document["temperature"])
        return torch.stack([_mean_pooled_logits(model, row, temperature) for row in rows])
    return torch.stack([run(model, row)["logits"] for row in rows])


def token_logits(path: Path, rows: Iterable[TokenRow]) -> list[torch.Tensor]:
    """Logits of the token classification head: one (tokens, labels) per row."""
    model = load_reference(path, TOKEN)
    return [run(model, row)["logits"] for row in rows]


def entity_pipeline(path: Path, *, max_tokens: int, side: str) -> TokenClassificationPipeline:
    """The pipeline of transformers that makes entities of labelled tokens.

    Args:
        path: of the checkpoint.
        max_tokens: texts are cut to it, special tokens included.
        side: which end is cut off, "left" or "right".
    """
    tokenizer = load_reference_tokenizer(path)
    tokenizer.model_max_length, tokenizer.truncation_side = max_tokens, side
    return TokenClassificationPipeline(  # type: ignore[no-untyped-call]
        model=load_reference(path, TOKEN), tokenizer=tokenizer
    )


def masked_lm_logits(path: Path, rows: Iterable[TokenRow]) -> list[torch.Tensor]:
    """Logits of the masked language model: one (tokens, vocabulary) per row."""
    model = load_reference(path, MASKED_LM)
    return [run(model, row)["logits"] for row in rows]


def next_token_logits(
    path: Path, rows: Iterable[TokenRow], token_ids: Sequence[int]
) -> torch.Tensor:
    """Logits of some tokens behind the last one: (rows, token_ids)."""
    model = load_reference(path, CAUSAL_LM)
    return torch.stack([run(model, row)["logits"][-1, list(token_ids)] for row in rows])


def yes_log_odds(path: Path, rows: Iterable[TokenRow]) -> torch.Tensor:
    """Logit of "yes" less that of "no" behind the last token: (rows,)."""
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    answers = [token_id(tokenizer, word) for word in ("no", "yes")]
    logits = next_token_logits(path, rows, answers)
    return logits[:, 1] - logits[:, 0]


def yes_probabilities(path: Path, rows: Iterable[TokenRow]) -> torch.Tensor:
    """Probability of "yes" against "no" behind the last token: (rows,)."""
    return yes_log_odds(path, rows).sigmoid()


def sentence_vectors(path: Path, texts: Sequence[str]) -> torch.Tensor:
    """What sentence-transformers answers, one text at a time: (texts, width)."""
    with tempfile.TemporaryDirectory() as folder:
        readable = translate_checkpoint(path, Path(folder) / "checkpoint")
        model = SentenceTransformer(str(readable), device="cpu", model_kwargs=dict(EAGER))
        return torch.stack([model.encode(text, convert_to_tensor=True) for text in texts])


def cross_encoder_scores(path: Path, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
    """What sentence-transformers' CrossEncoder answers, activation included, one pair at a time."""
    with tempfile.TemporaryDirectory() as folder:
        readable = translate_checkpoint(path, Path(folder) / "checkpoint")
        model = CrossEncoder(str(readable), device="cpu", model_kwargs=dict(EAGER))
        return torch.stack([model.predict([pair], convert_to_tensor=True)[0] for pair in pairs])


def sparse_vectors(path: Path, texts: Sequence[str]) -> torch.Tensor:
    """What sentence-transformers' SparseEncoder answers, one at a time: (texts, vocabulary)."""
    model = SparseEncoder(str(path), device="cpu", model_kwargs=dict(EAGER))
    vectors = [model.encode(text, convert_to_sparse_tensor=False) for text in texts]
    return torch.stack([torch.as_tensor(vector) for vector in vectors])


def splade_formula(path: Path, rows: Iterable[TokenRow]) -> torch.Tensor:
    """The published formula: max over tokens of log(1 + relu(logit)): (rows, vocabulary)."""
    logits = masked_lm_logits(path, rows)
    return torch.stack([torch.log1p(torch.relu(row)).amax(dim=0) for row in logits])


def colbert_vectors(path: Path, texts: Sequence[str], *, is_query: bool) -> list[torch.Tensor]:
    """What sentence-transformers' MultiVectorEncoder answers: one (vectors, width) per text.

    It reads its own layout, PyLate's and Stanford's.
    """
    model = MultiVectorEncoder(str(path), device="cpu", model_kwargs=dict(EAGER))
    encode = model.encode_query if is_query else model.encode_document
    return [torch.as_tensor(encode(text)) for text in texts]


def translate_checkpoint(path: Path, target: Path) -> Path:
    """A checkpoint with a config.json that transformers knows: `path` itself where it does.

    Args:
        path: of the checkpoint.
        target: written where `path` needs a translation; its other files are links.
    """
    document = json.loads((path / "config.json").read_text(encoding="utf-8"))
    translated = _translated(document)
    if translated == document:
        return path
    target.mkdir()
    for member in path.iterdir():
        (target / member.name).symlink_to(member)
    (target / "config.json").unlink()
    (target / "config.json").write_text(json.dumps(translated), encoding="utf-8")
    return target


def _translated(document: Mapping[str, object]) -> dict[str, object]:
    translators = {"new": _new_as_gte, "llama_bidirec": _bidirectional_as_llama}
    translate = translators.get(str(document["model_type"]))
    return dict(document) if translate is None else translate(document)


def _bidirectional_as_llama(document: Mapping[str, object]) -> dict[str, object]:
    return {**document, "model_type": "llama", "is_causal": False}


def _new_as_gte(document: Mapping[str, object]) -> dict[str, object]:
    # vLLM and the models' own code scale by s as: base b * s, frequencies / s^(2 / head width).
    # transformers spells that as linear scaling.
    theta, scaling = document["rope_theta"], document.get("rope_scaling")
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": theta}
    if isinstance(scaling, Mapping):
        factor = float(scaling["factor"])
        heads, width = document["num_attention_heads"], document["hidden_size"]
        head_width = int(str(width)) // int(str(heads))
        rope = {"rope_type": "linear", "rope_theta": float(str(theta)) * factor}
        rope["factor"] = factor ** (2 / head_width)
    kept = {key: value for key, value in document.items() if not key.startswith("rope_")}
    return {**kept, "model_type": "gte", "rope_parameters": rope}


def _mean_pooled_logits(model: PreTrainedModel, row: TokenRow, temperature: float) -> torch.Tensor:
    # Sequence classification of bidirectional Llama as its code is published: mean of the hidden
    # states, linear head, temperature.
    body, score = model.get_submodule("model"), model.get_submodule("score")
    with torch.inference_mode():
        hidden = body(**model_inputs(model, row)).last_hidden_state[0]
        logits: torch.Tensor = score(hidden.mean(dim=0)) / temperature
    return logits
