"""The other runtimes: each turns a padded batch into pooled, normalised vectors.

Libraries are imported by the engine that needs them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads import Padded

Encode = Callable[[Padded], NDArray[np.float32]]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def openvino(checkpoint: Path, folder: Path, num_threads: int) -> tuple[Encode, str]:
    """OpenVINO at its default precision, converted straight from the torch module."""
    import openvino as ov

    model = ov.convert_model(_pooled_encoder(checkpoint), example_input=_example_tensors())
    for port in model.inputs:
        port.get_node().set_partial_shape(ov.PartialShape([-1, -1]))
    model.validate_nodes_and_infer_types()
    options = {
        "INFERENCE_NUM_THREADS": num_threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = ov.compile_model(model, "CPU", options)
    request = compiled.create_infer_request()

    def encode(batch: Padded) -> NDArray[np.float32]:
        request.infer([getattr(batch, name) for name in INPUTS], share_inputs=True)
        return np.array(request.get_output_tensor(0).data)

    precision = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    return encode, f"openvino {ov.__version__.split('-')[0]}, {precision}"


def onnxruntime(checkpoint: Path, folder: Path, num_threads: int) -> tuple[Encode, str]:
    """ONNX Runtime in float32."""
    path = _export_onnx(checkpoint, folder / "encoder.onnx")
    return _onnx_encoder(path, num_threads), _onnx_version()


def onnxruntime_int8(checkpoint: Path, folder: Path, num_threads: int) -> tuple[Encode, str]:
    """ONNX Runtime with int8 weights and activations quantised at run time."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    path = _export_onnx(checkpoint, folder / "encoder.onnx")
    quantized = folder / "encoder-int8.onnx"
    # One scale per output channel: a single scale per matrix loses this model (cosine 0.9).
    quantize_dynamic(
        path,
        quantized,
        weight_type=QuantType.QInt8,
        per_channel=True,
        op_types_to_quantize=["MatMul", "Gemm"],
    )
    return _onnx_encoder(quantized, num_threads), f"{_onnx_version()}, dynamic int8"


def sentence_transformers(checkpoint: Path, folder: Path, num_threads: int) -> tuple[Encode, str]:
    """sentence-transformers on torch, float32, without its tokenisation."""
    import sentence_transformers as library
    import torch

    torch.set_num_threads(num_threads)
    model = library.SentenceTransformer(str(checkpoint), device="cpu", local_files_only=True)
    model.eval()

    def encode(batch: Padded) -> NDArray[np.float32]:
        with torch.inference_mode():
            features = {name: torch.from_numpy(getattr(batch, name)) for name in INPUTS}
            vectors: NDArray[np.float32] = model(features)["sentence_embedding"].numpy()
        return vectors

    return encode, f"sentence-transformers {library.__version__}, torch {torch.__version__}"


def _pooled_encoder(checkpoint: Path) -> Any:
    import torch
    from transformers import AutoModel

    class PooledEncoder(torch.nn.Module):
        """The encoder with mean pooling and normalisation inside, as every engine here has them."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = AutoModel.from_pretrained(checkpoint, dtype=torch.float32)

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            output = self.encoder(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            )
            mask = attention_mask.unsqueeze(-1).to(torch.float32)
            summed = (output[0] * mask).sum(1)
            return torch.nn.functional.normalize(summed / mask.sum(1), dim=1)

    return PooledEncoder().eval()


def _example_tensors() -> tuple[Any, Any, Any]:
    import torch

    mask = torch.ones(3, 24, dtype=torch.int64)
    mask[1, 16:] = 0  # a trace without padding would lose the mask
    return torch.randint(1000, 2000, (3, 24)), mask, torch.zeros(3, 24, dtype=torch.int64)


def _export_onnx(checkpoint: Path, path: Path) -> Path:
    import torch

    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    torch.onnx.export(
        _pooled_encoder(checkpoint),
        _example_tensors(),
        str(path),
        input_names=list(INPUTS),
        output_names=["vectors"],
        dynamic_shapes=({0: batch, 1: length},) * len(INPUTS),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    return path


def _onnx_encoder(path: Path, num_threads: int) -> Encode:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = num_threads, 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def encode(batch: Padded) -> NDArray[np.float32]:
        feeds = {name: getattr(batch, name) for name in INPUTS}
        vectors: NDArray[np.float32] = session.run(["vectors"], feeds)[0]
        return vectors

    return encode


def _onnx_version() -> str:
    import onnxruntime as ort

    return f"onnxruntime {ort.__version__}"
