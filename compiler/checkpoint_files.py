"""Which files of a checkpoint are read, and where its weights are. Reads no tensor.

Knows nothing of architectures: what the configuration files mean is read elsewhere.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.compiler.safetensors_header import CheckpointError
from infinity_v3.model_specs.laya_config import ENCODER_FOLDER, LAYA_CONFIG, TOKENIZER_FOLDER

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
ADAPTER_WEIGHTS = "adapter_model.safetensors"
README = "README.md"

READ_NAMES = (
    CONFIG,
    LAYA_CONFIG,
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "*.model",
    "chat_template.jinja",
    "chat_template.json",
    "artifact.metadata",
)
TEMPLATE_NAMES = "additional_chat_templates/*.jinja"
NESTED_NAMES = (
    f"{ENCODER_FOLDER}/{CONFIG}",
    *(
        f"{TOKENIZER_FOLDER}/{name}"
        for name in (
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            "added_tokens.json",
        )
    ),
)
"""What a Laya checkpoint keeps in folders."""
MODULE_FOLDERS = "[0-9]*_*"
MODULE_NAMES = (CONFIG, WEIGHTS)

HUB_PATTERNS = (
    *READ_NAMES,
    *NESTED_NAMES,
    TEMPLATE_NAMES,
    WEIGHTS,
    WEIGHTS_INDEX,
    "model-*.safetensors",
    README,
    *(f"{MODULE_FOLDERS}/{name}" for name in MODULE_NAMES),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """Paths relative to the checkpoint, with `/`, sorted.

    Attributes:
        read: every file whose content may reach the artifact, weights included.
        weights: safetensors files of the model itself.
        module_weights: safetensors files of modules after it, e.g. "2_Dense/model.safetensors".
    """

    read: tuple[str, ...]
    weights: tuple[str, ...]
    module_weights: tuple[str, ...]


def find_files(folder: Path) -> CheckpointFiles:
    """List the files of a checkpoint directory.

    Raises:
        CheckpointError: no configuration, no weights, or weights in a format that is not read.
    """
    if not any(folder.iterdir()):
        raise CheckpointError(f"{folder}: the directory is empty; expected a checkpoint")
    is_nested = (folder / LAYA_CONFIG).is_file()
    if not is_nested and not (folder / CONFIG).is_file():
        raise CheckpointError(f"{folder}: {CONFIG} is missing; expected a Hugging Face checkpoint")
    weights = _weight_files(folder)
    modules = _module_files(folder)
    named = {path.name for pattern in READ_NAMES for path in folder.glob(pattern) if path.is_file()}
    templates = {path.relative_to(folder).as_posix() for path in folder.glob(TEMPLATE_NAMES)}
    nested = {name for name in NESTED_NAMES if is_nested and (folder / name).is_file()}
    index = {WEIGHTS_INDEX} if weights != (WEIGHTS,) else set()
    return CheckpointFiles(
        read=tuple(sorted({*named, *nested, *templates, *weights, *index, *modules})),
        weights=weights,
        module_weights=tuple(name for name in modules if name.endswith(WEIGHTS)),
    )


def read_json_object(path: Path) -> dict[str, object]:
    """Read a small JSON file that must hold an object.

    Raises:
        CheckpointError: not JSON, or not an object.
        RunFailedError: the file cannot be read.
    """
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunFailedError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return parsed


def read_weight_map(folder: Path) -> dict[str, str]:
    """Read the index of sharded weights: tensor name -> file name.

    Raises:
        CheckpointError: the index is malformed or names a file outside the directory.
    """
    path = folder / WEIGHTS_INDEX
    weight_map = read_json_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: weight_map: expected an object of file names")
    for name, file in weight_map.items():
        if (
            not isinstance(file, str)
            or Path(file).name != file
            or not file.endswith(".safetensors")
        ):
            raise CheckpointError(
                f"{path}: weight_map[{name!r}]: expected a .safetensors file beside the index, "
                f"found {file!r}"
            )
    return weight_map


def _weight_files(folder: Path) -> tuple[str, ...]:
    # A single file wins over an index, as transformers has it.
    if (folder / WEIGHTS).is_file():
        return (WEIGHTS,)
    if (folder / WEIGHTS_INDEX).is_file():
        return _shards(folder)
    raise CheckpointError(f"{folder}: {_why_no_weights(folder)}")


def _shards(folder: Path) -> tuple[str, ...]:
    shards = tuple(sorted(set(read_weight_map(folder).values())))
    missing = [name for name in shards if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder}: {WEIGHTS_INDEX} names {len(shards)} files, of which {len(missing)} are "
            f"missing: {', '.join(missing[:3])}; fetch the checkpoint again"
        )
    return shards


def _why_no_weights(folder: Path) -> str:
    if any((folder / name).exists() for name in PICKLED_WEIGHTS):
        return (
            "its weights are a pickle (pytorch_model.bin), which is never opened; convert them to "
            "safetensors, e.g. load the model in transformers and call save_pretrained"
        )
    if (folder / ADAPTER_WEIGHTS).exists():
        return "holds an adapter only; merge it into its base model and save the result"
    if any(folder.glob("model-*.safetensors")):
        return f"{WEIGHTS_INDEX} is missing, which says where each tensor is"
    return f"holds no weights; expected {WEIGHTS} or {WEIGHTS_INDEX}"


def _module_files(folder: Path) -> tuple[str, ...]:
    found: list[str] = []
    for module in sorted(folder.glob(MODULE_FOLDERS)):
        if not module.is_dir():
            continue
        names = [name for name in MODULE_NAMES if (module / name).is_file()]
        if WEIGHTS not in names and (module / PICKLED_WEIGHTS[0]).exists():
            raise CheckpointError(f"{module}: {_why_no_weights(module)}")
        found.extend(f"{module.name}/{name}" for name in names)
    return tuple(found)
