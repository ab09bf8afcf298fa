"""The checkpoint's own model, as transformers implements it: the reference of every parity figure.

With model_config.py and families/, the only file that imports transformers. Knows nothing of
engines, targets or artifacts.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_utils import AttentionInterface

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.compiler.checkpoint_files import CONFIG
from infinity_v3.compiler.families import EXPERTS_NAME, pack, register_families
from infinity_v3.compiler.loaded_weights import LoadingReport, check_loaded
from infinity_v3.compiler.model_config import explaining, read_config
from infinity_v3.model_specs.json_file import shown

PACKED_ATTENTION = "infinity_varlen"
SDPA_FROM_TOKENS = 2049
"""Longer probes run through sdpa, because eager attention materialises S x S per head."""


def register_attention(name: str, function: Callable[..., tuple[Tensor, None]]) -> None:
    """Make `name` usable as `attn_implementation`.

    No mask function is registered with it: for an unknown name transformers builds no mask at all,
    which is what packed sequences need.
    """
    AttentionInterface.register(name, function)


class ModelClass(Enum):
    """A head that transformers knows, over any encoder."""

    ENCODER = "Model"
    SEQUENCE_CLASSIFIER = "ForSequenceClassification"
    TOKEN_CLASSIFIER = "ForTokenClassification"
    MASKED_LM = "ForMaskedLM"
    CAUSAL_LM = "ForCausalLM"


_AUTO_CLASSES: dict[ModelClass, Any] = {
    ModelClass.ENCODER: AutoModel,
    ModelClass.SEQUENCE_CLASSIFIER: AutoModelForSequenceClassification,
    ModelClass.TOKEN_CLASSIFIER: AutoModelForTokenClassification,
    ModelClass.MASKED_LM: AutoModelForMaskedLM,
    ModelClass.CAUSAL_LM: AutoModelForCausalLM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A checkpoint and what transformers cannot know of it.

    Attributes:
        path: where config.json and the weights lie.
        num_labels: rows of the classification head; None = as config.json has it.
        sees_both_ways: a decoder that was trained as an encoder, under a class that is causal.
    """

    path: Path
    num_labels: int | None = None
    sees_both_ways: bool = False


class ReferenceInput(Protocol):
    """What a reference is run on; see tasks.task.Probe."""

    @property
    def ids(self) -> NDArray[np.int64]: ...

    @property
    def types(self) -> NDArray[np.int64] | None: ...

    @property
    def key_count(self) -> int | None: ...


def load_model(
    source: ModelSource,
    model_class: ModelClass,
    *,
    dtype: torch.dtype,
    is_packed: bool = False,
    attention: str = "eager",
) -> PreTrainedModel:
    """Load a local checkpoint, weights complete or not at all.

    Args:
        source: the checkpoint.
        model_class: which head to load.
        dtype: of every weight.
        is_packed: prepare it to be called with packed rows; else it is the plain reference.
        attention: what the plain reference computes attention with.

    Raises:
        UsageError: transformers refuses config.json or has no such head for it, or the weights are
            not those of the model that it describes, finite and floating-point (`CheckpointError`).
    """
    _keep_quiet()
    register_families()
    config = read_config(source.path)
    _adapt(config, source)
    _refuse_absent_head(source.path, config, model_class)
    chosen = PACKED_ATTENTION if is_packed else attention
    if is_packed and _has_experts(config):
        config._experts_implementation = EXPERTS_NAME
    model, info = _build_model(source.path, config, model_class, dtype, chosen)
    report = LoadingReport(
        missing=tuple(info["missing_keys"]),
        mismatched=tuple(info["mismatched_keys"]),
        unexpected=tuple(info["unexpected_keys"]),
    )
    check_loaded(source.path, model, report)
    if is_packed:
        pack(model)
        if source.sees_both_ways:
            _attend_both_ways(model)
    model.eval()  # type: ignore[no-untyped-call]
    model.requires_grad_(False)
    return model


def _keep_quiet() -> None:
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def build_encoder(
    path: Path,
    tensors: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    is_packed: bool = False,
    attention: str = "eager",
) -> PreTrainedModel:
    """An encoder whose weights lie elsewhere than its config.json, as `load_model`.

    Args:
        path: where config.json lies.
        tensors: every weight of the encoder by its own name, in shapes that were checked.
        dtype: of every weight.
        is_packed: as for `load_model`.
        attention: as for `load_model`.

    Raises:
        UsageError: transformers refuses config.json.
    """
    _keep_quiet()
    register_families()
    config = read_config(path)
    config.use_cache = False
    with explaining(path, "build the model that it describes"):
        model_class: Any = AutoModel._model_mapping[type(config)]
        model, info = model_class.from_pretrained(
            None,
            config=config,
            state_dict=dict(tensors),
            dtype=dtype,
            attn_implementation=PACKED_ATTENTION if is_packed else attention,
            output_loading_info=True,
        )
    report = LoadingReport(
        missing=tuple(info["missing_keys"]),
        mismatched=tuple(info["mismatched_keys"]),
        unexpected=tuple(info["unexpected_keys"]),
    )
    assert report == LoadingReport(missing=(), mismatched=(), unexpected=()), (
        "checked weights did not fit; this is a bug"
    )
    if is_packed:
        pack(model)
    model.eval()
    model.requires_grad_(False)
    built: PreTrainedModel = model
    return built


def encoder_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Name and shape of every weight of the bare model of a config.json.

    Raises:
        UsageError: transformers refuses config.json.
    """
    register_families()
    config = read_config(path)
    with explaining(path, "build the model that it describes"), torch.device("meta"):
        model: nn.Module = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def encoder_of(model: PreTrainedModel) -> nn.Module:
    """The model without its head."""
    encoder: nn.Module = getattr(model, model.base_model_prefix)
    return encoder


def replace_encoder(model: PreTrainedModel, encoder: nn.Module) -> None:
    """Put another module in the place of the encoder."""
    setattr(model, model.base_model_prefix, encoder)


def allow_batches(model: PreTrainedModel) -> None:
    """Let a head that is given one vector per text take several, padding token or not.

    Heads that look for a text's end by padding refuse several texts where config.json has no id for
    it. In vectors nothing is looked for: any id will do.
    """
    config = model.config.get_text_config()
    if config.pad_token_id is None:
        config.pad_token_id = 0


def output_projection(model: PreTrainedModel) -> nn.Linear:
    """The last layer of a language model, vectors to logits of the vocabulary."""
    projection: nn.Linear = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return projection


def replace_output_projection(model: PreTrainedModel, projection: nn.Module) -> None:
    """Put another module in the place of the last layer of a language model."""
    model.set_output_embeddings(projection)  # type: ignore[no-untyped-call]


def _adapt(config: PreTrainedConfig, source: ModelSource) -> None:
    if source.num_labels is not None and config.num_labels != source.num_labels:
        config.num_labels = source.num_labels
    if source.sees_both_ways:
        config.is_causal = False
    config.use_cache = False
    if getattr(config, "chunk_size_feed_forward", 0):
        config.chunk_size_feed_forward = 0  # saves memory, changes no number, can't be exported


def _build_model(
    path: Path,
    config: PreTrainedConfig,
    model_class: ModelClass,
    dtype: torch.dtype,
    attention: str,
) -> tuple[PreTrainedModel, dict[str, Any]]:
    has_unused_pooler = model_class is ModelClass.ENCODER and _has_pooler(config)
    options: dict[str, Any] = {"add_pooling_layer": False} if has_unused_pooler else {}
    with explaining(path, "build the model that it describes"):
        model, info = _AUTO_CLASSES[model_class].from_pretrained(
            path,
            config=config,
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # reported by name and in one sentence
            output_loading_info=True,
            **options,
        )
    return model, info


def _has_experts(config: PreTrainedConfig) -> bool:
    return bool(getattr(config, "num_experts", 0))


def _has_pooler(config: PreTrainedConfig) -> bool:
    model_class = AutoModel._model_mapping[type(config)]
    return "add_pooling_layer" in inspect.signature(model_class.__init__).parameters  # type: ignore[misc]


def _attend_both_ways(model: nn.Module) -> None:
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False  # type: ignore[assignment]


def _refuse_absent_head(path: Path, config: PreTrainedConfig, model_class: ModelClass) -> None:
    if type(config) not in _AUTO_CLASSES[model_class]._model_mapping:
        raise UsageError(
            f"{path / CONFIG}: expected a family that has a class *{model_class.value}, found "
            f"{shown(config.model_type)}, which has none; leave --task out or use a checkpoint of "
            "another family"
        )


class Reference:
    """Runs one input at a time, padding-free by construction, in float32.

    Every output is the model's own; positions are, too.
    """

    def __init__(self, source: ModelSource, model_class: ModelClass) -> None:
        self._source = source
        self._class = model_class
        self._eager = load_model(source, model_class, dtype=torch.float32)
        self._sdpa: PreTrainedModel | None = None

    def run(self, probe: ReferenceInput) -> Any:  # noqa: ANN401 - each head has an output class
        """The model's output for a batch of one; UsageError when transformers cannot run it."""
        return self._call(self._model(probe), probe)

    def run_encoder(self, probe: ReferenceInput) -> Any:  # noqa: ANN401 - as above
        """The output of the model without its head; errors as `run`."""
        return self._call(encoder_of(self._model(probe)), probe)

    def module(self, name: str) -> nn.Module:
        """A part of the model."""
        return self._eager.get_submodule(name)

    def _model(self, probe: ReferenceInput) -> PreTrainedModel:
        return self._eager if len(probe.ids) < SDPA_FROM_TOKENS else self._long_model()

    def _call(self, model: nn.Module, probe: ReferenceInput) -> Any:  # noqa: ANN401 - as above
        with explaining(self._source.path, "run the model that it describes"):
            return _call(model, probe)

    def _long_model(self) -> PreTrainedModel:
        if self._sdpa is None:
            self._sdpa = load_model(
                self._source, self._class, dtype=torch.float32, attention="sdpa"
            )
        return self._sdpa


def _call(model: nn.Module, probe: ReferenceInput) -> Any:  # noqa: ANN401 - as above
    ids = torch.from_numpy(probe.ids)[None]
    mask = torch.ones_like(ids)
    if probe.key_count is not None:
        mask[:, probe.key_count :] = 0
    types = {} if probe.types is None else {"token_type_ids": torch.from_numpy(probe.types)[None]}
    with torch.inference_mode():
        return model(input_ids=ids, attention_mask=mask, **types)
