"""Right vectors of texts: from the reference library, or from a server that does nothing else."""

import json
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from compiled import minilm_checkpoint
from server_process import ServerProcess


def from_library(texts: Sequence[str]) -> NDArray[np.float32]:
    """(texts, width) unit vectors of all-MiniLM-L6-v2 by sentence-transformers, one at a time."""
    from sentence_transformers import SentenceTransformer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SentenceTransformer(str(minilm_checkpoint()), device="cpu")
        rows = [model.encode(text, normalize_embeddings=True) for text in texts]
    return np.stack(rows).astype(np.float32)


def from_idle_server(server: ServerProcess, texts: Sequence[str]) -> NDArray[np.float32]:
    """(texts, width) unit vectors, one request for each text."""
    rows = []
    for text in texts:
        reply = server.post("/embed", {"inputs": text})
        assert reply.status == 200, reply.body
        rows.append(json.loads(reply.body)[0])
    return np.array(rows, dtype=np.float32)
