"""The process in which a target is verified: loads the engine as the server does, runs probes.

The only compiler file that imports the runtime. Imports neither torch nor transformers.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.artifacts.manifest import Target
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.parity import Outputs, output_kind
from infinity_v3.runtime.batch import ROWS_INPUT, Batch, EncodedText, pack
from infinity_v3.runtime.engine import Engine, EngineSettings, load_engine
from infinity_v3.runtime.fold import Fold, fold, pack_folded

PROBES_FILE = "probes.npz"
"""What the process is given, in its scratch folder."""
FOUND_FILE = "found.npz"
"""What it leaves there."""


def run_probes(artifact: Artifact, target: Target, scratch: Path, threads: int) -> None:
    """The child's whole work: every probe alone, then every batch, outputs into a file."""
    with np.load(scratch / PROBES_FILE, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    texts = _texts(arrays)
    members, sizes = arrays["members"], arrays["sizes"]
    ends = np.cumsum(sizes)
    batches = [
        [texts[m] for m in members[end - size : end]] for end, size in zip(ends, sizes, strict=True)
    ]
    engine = load_engine(artifact, target, EngineSettings(num_threads=threads))
    offset = artifact.manifest.model.position_offset
    found = {
        **_run_all(engine, [[text] for text in texts], offset, "alone"),
        **_run_all(engine, batches, offset, "batched"),
    }
    engine.close()
    np.savez(scratch / FOUND_FILE, allow_pickle=False, **found)


def _texts(arrays: Mapping[str, NDArray[np.int64]]) -> list[EncodedText]:
    ids, types, readouts = arrays["ids"], arrays["types"], arrays["readouts"]
    own = zip(
        pairwise(arrays["bounds"]),
        arrays["key_counts"],
        pairwise(arrays["readout_bounds"]),
        strict=True,
    )
    return [
        EncodedText(
            input_ids=ids[i:j],
            token_type_ids=types[i:j],
            num_keys=int(count),
            readout_positions=readouts[first:last],
        )
        for (i, j), count, (first, last) in own
    ]


def _run_all(
    engine: Engine, batches: Sequence[Sequence[EncodedText]], offset: int, part: str
) -> dict[str, NDArray[np.float32]]:
    names = frozenset(spec.name for spec in engine.graph.outputs)
    outputs = [_run_batch(engine, batch, offset, names) for batch in batches]
    return {
        f"{part}/{name}": np.concatenate([output[name] for output in outputs])
        for name in sorted(names)
    }


def _run_batch(
    engine: Engine, texts: Sequence[EncodedText], offset: int, names: frozenset[str]
) -> Outputs:
    """One call; where the graph can share prefixes, all that can be shared is."""
    if ROWS_INPUT not in {spec.name for spec in engine.graph.inputs}:
        return engine.run(pack(texts, position_offset=offset), names).tensors
    folded = fold([text.input_ids for text in texts])
    batch = pack_folded(texts, folded, position_offset=offset)
    tensors = engine.run(batch, names).tensors
    return {name: _unsorted(array, batch, folded, name) for name, array in tensors.items()}


def _unsorted(
    array: NDArray[np.float32], batch: Batch, folded: Fold, name: str
) -> NDArray[np.float32]:
    """An output in the order of the texts before they were folded."""
    places = np.argsort(folded.order)
    if not output_kind(name).is_per_token:
        return array[places]
    own = [slice(i, j) for i, j in pairwise(batch.cu_seqlens)]
    return np.concatenate([array[own[place]] for place in places])


def main(arguments: Sequence[str]) -> None:
    """Entry of the child: ARTIFACT TARGET SCRATCH THREADS."""
    path, name, scratch, threads = arguments
    artifact = open_artifact(
        # Who else may write to it was decided before this process was started.
        Path(path),
        digests=DigestPolicy.ALWAYS,
        allow_shared=True,
    )
    target = next(target for target in artifact.manifest.targets if target.name == name)
    run_probes(artifact, target, Path(scratch), int(threads))
    loaded = sorted({"torch", "transformers"} & set(sys.modules))
    if loaded:
        raise RunFailedError(f"the verifying process imported {json.dumps(loaded)}; this is a bug")


if __name__ == "__main__":
    main(sys.argv[1:])
