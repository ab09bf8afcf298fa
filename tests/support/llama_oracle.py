"""llama.cpp as an independent implementation of families that transformers does not have.

Owns the translation of published checkpoints into GGUF, tensor names and metadata as llama.cpp's
architectures ask for them. Knows nothing of the product.
"""

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import xllamacpp
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[np.float32]

_BLOCK = re.compile(r"encoder\.layers?\.(\d+)\.(.+)\.(\w+)")
_TOP = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "emb_ln": "token_embd_norm",
}
_JINA = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.self.layer_norm_q": "attn_q_norm",
    "attention.self.layer_norm_k": "attn_k_norm",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "layer_norm_1": "attn_norm_2",
    "layer_norm_2": "layer_output_norm",
    "mlp.gated_layers": "ffn_up",
    "mlp.wo": "ffn_down",
    "mlp.layernorm": "layer_output_norm",
    "mlp.down_layer": "ffn_down",
}
_NOMIC = {
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "norm1": "attn_output_norm",
    "norm2": "layer_output_norm",
    "mlp.fc1": "ffn_up",
    "mlp.fc11": "ffn_up",
    "mlp.fc12": "ffn_gate",
    "mlp.fc2": "ffn_down",
    "mlp.router.layer": "ffn_gate_inp",
}
_NO_NORMALIZATION = -1


class LlamaOracle:
    """A running llama.cpp."""

    def __init__(self, address: str) -> None:
        self._url = f"{address}/embedding"

    def hidden(self, ids: list[int]) -> Array:
        """Last hidden state of one text; (S, D) float32."""
        request = urllib.request.Request(
            self._url,
            data=json.dumps({"content": ids, "embd_normalize": _NO_NORMALIZATION}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            rows = json.loads(response.read())[0]["embedding"]
        return np.asarray(rows, np.float32)


@contextmanager
def run_llama(checkpoint: Path, scratch: Path) -> Iterator[LlamaOracle]:
    """Run llama.cpp on a published checkpoint of JinaBERT v2 or NomicBERT.

    Args:
        scratch: where the GGUF file may be written.
    """
    file = write_gguf(checkpoint, scratch / f"{checkpoint.name}.gguf")
    server = xllamacpp.Server(_parameters(file))
    yield LlamaOracle(server.listening_address)
    del server


def write_gguf(checkpoint: Path, file: Path) -> Path:
    """Translate a checkpoint."""
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(checkpoint / "model.safetensors")
    is_nomic = config["model_type"] == "nomic_bert"
    translated = _nomic_tensors(tensors, config) if is_nomic else _jina_tensors(tensors)
    writer = gguf.GGUFWriter(file, _architecture(config))
    (_nomic_metadata if is_nomic else _jina_metadata)(writer, config)
    _common_metadata(writer, config)
    for name, value in translated.items():
        writer.add_tensor(name, np.ascontiguousarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _parameters(file: Path) -> xllamacpp.CommonParams:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(file)
    parameters.embedding = True
    parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_NONE
    # Its fused attention keeps keys, values and the bias in 16 bits.
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.embd_normalize = _NO_NORMALIZATION
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 512
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.warmup = False
    parameters.verbosity = -1
    return parameters


def _architecture(config: Mapping[str, Any]) -> str:
    if config["model_type"] == "bert":
        return "jina-bert-v2"
    return "nomic-bert-moe" if config.get("num_experts") else "nomic-bert"


def _common_metadata(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_context_length(512)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.NONE)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_tokenizer_model("none")


def _jina_metadata(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])


def _nomic_metadata(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_embedding_length(config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_feed_forward_length(config["n_inner"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_rope_freq_base(float(config["rotary_emb_base"]))
    if config.get("num_experts"):
        writer.add_moe_every_n_layers(config["moe_every_n_layers"])
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["moe_top_k"])


def _jina_tensors(tensors: Mapping[str, Array]) -> dict[str, Array]:
    translated: dict[str, Array] = {}
    for name, value in tensors.items():
        if name.startswith("pooler."):
            continue
        match = _BLOCK.fullmatch(name)
        if match is None:
            stem, _, kind = name.rpartition(".")
            translated[f"{_TOP[stem]}.{kind}"] = value
        elif match[2] == "mlp.up_gated_layer":
            # Here the gate lies behind the values, in the other layout before them; llama.cpp
            # takes the two apart or in that order.
            values, gate = np.split(value, 2)
            translated[f"blk.{match[1]}.ffn_up.weight"] = values
            translated[f"blk.{match[1]}.ffn_gate.weight"] = gate
        else:
            translated[f"blk.{match[1]}.{_JINA[match[2]]}.{match[3]}"] = value
    return translated


def _nomic_tensors(tensors: Mapping[str, Array], config: Mapping[str, Any]) -> dict[str, Array]:
    translated: dict[str, Array] = {}
    for name, value in tensors.items():
        match = _BLOCK.fullmatch(name)
        if match is None:
            stem, _, kind = name.rpartition(".")
            translated[f"{_TOP[stem]}.{kind}"] = value
        elif match[2] == "mlp.experts.mlp":
            experts = value.reshape(config["num_experts"], config["n_inner"], config["n_embd"])
            target = "ffn_up_exps" if match[3] == "w1" else "ffn_down_exps"
            by_row = experts if match[3] == "w1" else experts.transpose(0, 2, 1)
            translated[f"blk.{match[1]}.{target}.weight"] = by_row
        elif match[2] != "mlp.experts":
            translated[f"blk.{match[1]}.{_NOMIC[match[2]]}.{match[3]}"] = value
    return translated
