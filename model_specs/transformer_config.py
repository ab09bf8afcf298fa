"""What config.json says of the encoder, whatever names its family gives the sizes.

Judges no family.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.config_numbers import check_numbers, count_experts
from infinity_v3.model_specs.json_file import JsonObject, read_object, shown

_SIZE_NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "dim", "d_model", "n_embd"),
    "vocab_size": ("vocab_size",),
    "num_hidden_layers": ("num_hidden_layers", "n_layers", "num_layers", "n_layer"),
    "num_attention_heads": ("num_attention_heads", "n_heads", "num_heads", "n_head"),
    "max_position_embeddings": ("max_position_embeddings", "max_trained_positions", "n_positions"),
    "type_vocab_size": ("type_vocab_size",),
}
"""Our name -> names in config.json, the first present one counts."""

# Far above any model, low enough that a product of two sizes is still a sane number of bytes.
_MAX_SIZE = 10**9
_MAX_LABELS = 1_000_000
_BIDIRECTIONAL = "_bidirec"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """config.json of the encoder.

    Attributes:
        file: the config.json that was read.
        model_type: e.g. "bert".
        architectures: class names, the first one is what the weights were saved from; may be empty.
        sizes: our size name -> value, only sizes that the file states. Read them through the
            properties.
        pad_token_id: None when absent; some generative checkpoints say -1.
        labels: names in id order, empty without `id2label`.
        problem_type: e.g. "multi_label_classification".
        dtype: dtype name of the stored weights, e.g. "float32".
        position_embedding_type: e.g. "absolute".
        has_own_code: `auto_map` names Python code that the checkpoint brings along.
        is_decoder: attention was trained to see only the past.
        is_bidirectional: a decoder whose attention was trained to see both ways.
        head_dim: width of an attention head, where the file states it.
        has_experts: layers route tokens to experts.
        window: keys that a token of a windowed layer sees, as the file counts them; None = none.
        classifier_pooling: what the classification head reads, e.g. "mean"; None = not stated.
        temperature: logits are divided by it.
        is_quantized: weights are stored by a quantisation method.
    """

    file: Path
    model_type: str
    architectures: tuple[str, ...]
    sizes: Mapping[str, int]
    pad_token_id: int | None
    labels: tuple[str, ...]
    problem_type: str | None
    dtype: str | None
    position_embedding_type: str | None
    has_own_code: bool
    is_decoder: bool
    is_bidirectional: bool
    head_dim: int | None
    has_experts: bool
    window: int | None
    classifier_pooling: str | None
    temperature: float
    is_quantized: bool

    @property
    def architecture(self) -> str | None:
        """The class that the weights were saved from, None when the file doesn't say."""
        return self.architectures[0] if self.architectures else None

    @property
    def hidden_size(self) -> int:
        """Width of a token vector. Raises UsageError when the file doesn't say."""
        return self._size("hidden_size")

    @property
    def vocab_size(self) -> int:
        """Rows of the word embedding. Raises UsageError when the file doesn't say."""
        return self._size("vocab_size")

    @property
    def num_hidden_layers(self) -> int:
        """Encoder layers. Raises UsageError when the file doesn't say."""
        return self._size("num_hidden_layers")

    @property
    def num_attention_heads(self) -> int:
        """Attention heads of a layer. Raises UsageError when the file doesn't say."""
        return self._size("num_attention_heads")

    @property
    def max_position_embeddings(self) -> int:
        """Rows of the position table. Raises UsageError when the file doesn't say."""
        return self._size("max_position_embeddings")

    @property
    def type_vocab_size(self) -> int | None:
        """Rows of the token type table, None when the file doesn't say."""
        return self.sizes.get("type_vocab_size")

    def _size(self, name: str) -> int:
        if name not in self.sizes:
            raise UsageError(
                f"{self.file}: {name}: expected a whole number, found nothing; "
                f"a model of type {shown(self.model_type)} can't be built without it"
            )
        return self.sizes[name]


def read_transformer_config(file: Path) -> TransformerConfig:
    """Read config.json; sizes that stand in a nested `text_config` are found too.

    Raises:
        UsageError: the file is no configuration, or one of the keys has a wrong type or value.
        RunFailedError: the file can't be read.
    """
    config = read_object(file)
    model_type = config.text("model_type")
    if not model_type:
        config.refuse("model_type", 'a model type such as "bert"')
    check_numbers(config)
    return TransformerConfig(
        file=file,
        model_type=model_type,
        architectures=config.texts("architectures"),
        sizes=_read_sizes(config),
        pad_token_id=config.integer("pad_token_id", minimum=-1, maximum=_MAX_SIZE),
        labels=_read_labels(config),
        problem_type=config.text("problem_type"),
        dtype=_read_dtype(config),
        position_embedding_type=config.text("position_embedding_type"),
        has_own_code=config.has("auto_map"),
        is_decoder=config.flag("is_decoder", default=False),
        is_bidirectional=_is_bidirectional(config, model_type),
        head_dim=config.integer("head_dim", minimum=1, maximum=_MAX_SIZE),
        has_experts=count_experts(config) > 0,
        window=_read_window(config),
        classifier_pooling=_read_classifier_pooling(config, model_type),
        temperature=_read_temperature(config),
        is_quantized=config.has("quantization_config"),
    )


def _read_sizes(config: JsonObject) -> Mapping[str, int]:
    sections = [section for section in (config, config.child("text_config")) if section]
    sizes: dict[str, int] = {}
    for name, aliases in _SIZE_NAMES.items():
        candidates = [(section, alias) for section in sections for alias in aliases]
        for section, alias in candidates:
            size = section.integer(alias, minimum=0, maximum=_MAX_SIZE)
            if size is not None:
                sizes[name] = size
                break
    return sizes


def _is_bidirectional(config: JsonObject, model_type: str) -> bool:
    """Checkpoints say it by a key, or by a model type such as "llama_bidirec"."""
    return (
        model_type.endswith(_BIDIRECTIONAL)
        or not config.flag("is_causal", default=True)
        or config.flag("use_bidirectional_attention", default=False)
    )


def _read_classifier_pooling(config: JsonObject, model_type: str) -> str | None:
    key = "pooling" if model_type.endswith(_BIDIRECTIONAL) else "classifier_pooling"
    return config.text(key)


def _read_temperature(config: JsonObject) -> float:
    config.require_positive("temperature")
    value = config.values.get("temperature")
    return float(value) if isinstance(value, (int, float)) else 1.0


def _read_window(config: JsonObject) -> int | None:
    if not config.flag("use_sliding_window", default=True):
        return None
    return config.integer("sliding_window", minimum=1, maximum=_MAX_SIZE) or config.integer(
        "local_attention", minimum=1, maximum=_MAX_SIZE
    )


def _read_dtype(config: JsonObject) -> str | None:
    # transformers 5 writes `dtype`, earlier releases `torch_dtype`.
    name = config.text("dtype") or config.text("torch_dtype")
    return name.removeprefix("torch.") if name else None


def _read_labels(config: JsonObject) -> tuple[str, ...]:
    labels = config.child("id2label")
    if labels is None:
        return _read_labels_by_name(config)
    named: dict[int, str] = {}
    for key in labels.values:
        name = labels.text(key)
        is_id = key.isascii() and key.isdecimal() and len(key) <= len(str(_MAX_LABELS))
        if name is None or not is_id:
            labels.refuse(key, "a label id from 0 and its name")
        named[int(key)] = name
    return _in_id_order(config, "id2label", named)


def _read_labels_by_name(config: JsonObject) -> tuple[str, ...]:
    labels = config.child("label2id")
    if labels is None:
        return ()
    ids = {name: labels.integer(name, minimum=0, maximum=_MAX_LABELS) for name in labels.values}
    return _in_id_order(config, "label2id", {i: name for name, i in ids.items() if i is not None})


def _in_id_order(config: JsonObject, key: str, named: Mapping[int, str]) -> tuple[str, ...]:
    stated = config.child(key)
    if sorted(named) != list(range(len(named))) or (stated and len(stated.values) != len(named)):
        config.refuse(key, "one name for each id from 0 without a gap")
    return tuple(named[index] for index in range(len(named)))
