"""Everything a checkpoint directory states about itself, read once into typed values.

Owns the order in which the files of transformers and sentence-transformers are looked for. Reads no
weights and judges neither family nor task: `registry.py` does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from infinity_v3.artifacts.errors import RunFailedError, UsageError
from infinity_v3.artifacts.manifest import Prompts
from infinity_v3.model_specs.dense_config import (
    POOLED_VECTOR,
    TOKEN_VECTORS,
    DenseLayer,
    read_dense_layer,
)
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_object
from infinity_v3.model_specs.late_interaction_config import (
    LateInteractionConfig,
    read_library_layout,
    read_stanford,
    refuse_other_vectors,
)
from infinity_v3.model_specs.laya_config import (
    ENCODER_FOLDER,
    LAYA_CONFIG,
    TOKENIZER_FOLDER,
    LayaConfig,
    read_laya_config,
)
from infinity_v3.model_specs.markers import side_prompts
from infinity_v3.model_specs.model_card import read_license
from infinity_v3.model_specs.module_configs import (
    LogitScore,
    SpladePooling,
    read_logit_score,
    read_splade_pooling,
)
from infinity_v3.model_specs.module_list import (
    Module,
    ModuleKind,
    check_order,
    class_of,
    read_module_list,
)
from infinity_v3.model_specs.pooling_config import PoolingConfig, read_pooling_config
from infinity_v3.model_specs.prompts import (
    MULTI_VECTOR_TYPE,
    PYLATE_TYPE,
    SentenceTransformersConfig,
    read_sentence_transformers_config,
)
from infinity_v3.model_specs.sentence_config import SentenceConfig, read_sentence_config
from infinity_v3.model_specs.tokenizer_files import TokenizerFiles, read_tokenizer_files
from infinity_v3.model_specs.transformer_config import TransformerConfig, read_transformer_config
from infinity_v3.model_specs.vocabulary import read_vocabulary

STANFORD_COLBERT = "HF_ColBERT"
_Config = TypeVar("_Config")
_LATE_INTERACTION_TYPES = (MULTI_VECTOR_TYPE, PYLATE_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """What one checkpoint says.

    Attributes:
        path: the checkpoint directory.
        encoder_path: where config.json, the encoder's weights and the tokenizer lie: `path`, or a
            folder in it for checkpoints of early releases of sentence-transformers.
        model: config.json.
        modules: modules.json; None = there is none, the checkpoint is a bare model.
        pooling: the stored pooling; None = there is none.
        dense: dense modules in order.
        normalize: a Normalize module ends the chain.
        splade: the stored pooling of a sparse model; None = there is none.
        logit_score: the tokens whose logits are the score; None = there are none.
        late_interaction: the rules of a late-interaction model; None = it is none.
        decision: what a typed-decision model says of itself; None = it is none.
        sentence: limits on the input; None = none stored.
        prompts: named prompts, may be empty; of a late-interaction model without its markers.
        similarity: as sentence-transformers spells it, e.g. "cosine", or None.
        score_activation: dotted class name of what makes scores of logits; None = not stated.
        model_class: the class of sentence-transformers that saved it, e.g. "SentenceTransformer".
        tokenizer: tokenizer files.
        license: as the README's front matter states it.
        files: every file that was read, relative to `path`, sorted. Weights are not among them.
    """

    path: Path
    encoder_path: Path
    model: TransformerConfig
    modules: tuple[Module, ...] | None
    pooling: PoolingConfig | None
    dense: tuple[DenseLayer, ...]
    normalize: bool
    splade: SpladePooling | None
    logit_score: LogitScore | None
    late_interaction: LateInteractionConfig | None
    decision: LayaConfig | None = None
    sentence: SentenceConfig | None
    prompts: Prompts
    similarity: str | None
    score_activation: str | None
    model_class: str
    tokenizer: TokenizerFiles
    license: str | None
    files: tuple[str, ...]

    @property
    def must_lower_text(self) -> bool:
        """The text is to be lowered before tokenising, which the tokenizer doesn't do by itself."""
        asked = self.sentence is not None and self.sentence.do_lower_case
        return asked and not self.tokenizer.lowers_case


def read_hub_config(path: Path) -> HubConfig:
    """Read a checkpoint directory.

    Raises:
        UsageError: there is no config.json or no tokenizer.json, or a file is not what it should
            be; the sentence names file and key.
        RunFailedError: a file can't be read.
    """
    _require_directory(path)
    if is_present(path / LAYA_CONFIG):
        return _read_laya(path)
    modules = read_module_list(path / "modules.json")
    encoder_path = path / modules[0].folder if modules else path
    usage = read_sentence_transformers_config(path / "config_sentence_transformers.json")
    model_class = (usage and usage.model_type) or class_of(modules or ())
    if modules is not None:
        check_order(path / "modules.json", modules, model_class)
    _require_config(path, encoder_path)
    model = read_transformer_config(encoder_path / "config.json")
    if STANFORD_COLBERT in model.architectures:
        model_class = MULTI_VECTOR_TYPE
    is_late = model_class in _LATE_INTERACTION_TYPES
    vector = TOKEN_VECTORS if is_late else POOLED_VECTOR
    sentence = read_sentence_config(encoder_path, model_class)
    config = HubConfig(
        path=path,
        encoder_path=encoder_path,
        model=model,
        modules=modules,
        pooling=_read_pooling(path, modules),
        dense=tuple(
            read_dense_layer(path, folder, vector=vector)
            for folder in _folders(modules, ModuleKind.DENSE)
        ),
        normalize=_read_normalize(path, modules, is_late=is_late),
        splade=_read_module(path, modules, ModuleKind.SPLADE_POOLING, read_splade_pooling),
        logit_score=_read_module(path, modules, ModuleKind.LOGIT_SCORE, read_logit_score),
        late_interaction=None,
        sentence=sentence,
        prompts=usage.prompts if usage else Prompts(),
        similarity=usage.similarity if usage else None,
        score_activation=(usage and usage.activation) or _read_activation(model.file),
        model_class=model_class,
        tokenizer=read_tokenizer_files(encoder_path),
        license=read_license(path / "README.md"),
        files=(),
    )
    config = _with_late_interaction(config) if is_late else config
    return replace(config, files=_files_read(config, usage))


def _read_laya(path: Path) -> HubConfig:
    """Encoder and tokenizer have a folder each, and all weights lie in one file beside them."""
    encoder_path = path / ENCODER_FOLDER
    _require_config(path, encoder_path)
    config = HubConfig(
        path=path,
        encoder_path=encoder_path,
        model=read_transformer_config(encoder_path / "config.json"),
        modules=None,
        pooling=None,
        dense=(),
        normalize=False,
        splade=None,
        logit_score=None,
        late_interaction=None,
        decision=read_laya_config(path / LAYA_CONFIG),
        sentence=None,
        prompts=Prompts(),
        similarity=None,
        score_activation=None,
        model_class="",
        tokenizer=read_tokenizer_files(path / TOKENIZER_FOLDER),
        license=read_license(path / "README.md"),
        files=(),
    )
    return replace(config, files=_files_read(config, None))


def _with_late_interaction(config: HubConfig) -> HubConfig:
    late = _read_late_interaction(config)
    if late is None:
        return config
    vocabulary = read_vocabulary(config.tokenizer.tokenizer)
    prompts = side_prompts(config.prompts, late.prefixes, vocabulary)
    return replace(config, late_interaction=late, prompts=prompts)


def _read_late_interaction(config: HubConfig) -> LateInteractionConfig | None:
    if config.modules is None:
        is_stanford = STANFORD_COLBERT in config.model.architectures
        return read_stanford(config.path) if is_stanford else None
    masks = _folders(config.modules, ModuleKind.MULTI_VECTOR_MASK)
    return read_library_layout(
        config.path / "config_sentence_transformers.json",
        config.sentence.file if config.sentence else None,
        mask=config.path / masks[0] / "config.json" if masks else None,
        normalize=config.normalize,
        model_class=config.model_class,
    )


def _files_read(config: HubConfig, usage: SentenceTransformersConfig | None) -> tuple[str, ...]:
    sources = (
        config.model,
        config.sentence,
        config.pooling,
        config.splade,
        config.logit_score,
        config.decision,
        usage,
    )
    files = [source.file for source in sources if source is not None]
    files += [config.tokenizer.tokenizer, *config.tokenizer.companions]
    files += [template.file for template in config.tokenizer.templates]
    files += config.late_interaction.files if config.late_interaction else ()
    if config.modules:
        files.append(config.path / "modules.json")
    folders = _folders(config.modules, ModuleKind.DENSE, ModuleKind.NORMALIZE)
    configs = [config.path / folder / "config.json" for folder in folders]
    files += [file for file in configs if is_present(file)]
    return tuple(sorted({file.relative_to(config.path).as_posix() for file in files}))


def _folders(modules: tuple[Module, ...] | None, *kinds: ModuleKind) -> tuple[str, ...]:
    return tuple(module.folder for module in modules or () if module.kind in kinds)


def _require_directory(path: Path) -> None:
    try:
        is_directory = path.is_dir()
    except OSError as error:
        raise RunFailedError(f"{path}: can't be read: {error.strerror}") from None
    if not is_directory:
        raise UsageError(f"{path}: expected a checkpoint directory, found none")


def _require_config(path: Path, encoder_path: Path) -> None:
    if is_present(encoder_path / "config.json"):
        return
    if is_present(path / "adapter_config.json"):
        raise UsageError(
            f"{path}: expected a whole checkpoint, found an adapter only; merge it into its base "
            "model first"
        )
    if is_present(path / "artifact.json"):
        raise UsageError(
            f"{path}: expected a checkpoint, found an artifact, which is compiled already; "
            "serve it with infinity_v3 --model-id"
        )
    raise UsageError(
        f"{encoder_path / 'config.json'}: expected the configuration of a transformers model, "
        "found none"
    )


def _read_pooling(path: Path, modules: tuple[Module, ...] | None) -> PoolingConfig | None:
    if modules is not None:
        return _read_module(path, modules, ModuleKind.POOLING, read_pooling_config)
    # Some conversions of a checkpoint keep its pooling but not its module list.
    file = path / "1_Pooling" / "config.json"
    return read_pooling_config(file) if is_present(file) else None


def _read_module(
    path: Path,
    modules: tuple[Module, ...] | None,
    kind: ModuleKind,
    read: Callable[[Path], _Config],
) -> _Config | None:
    folders = _folders(modules, kind)
    return read(path / folders[0] / "config.json") if folders else None


def _read_activation(file: Path) -> str | None:
    """What config.json says of scores, where releases before 6 wrote it."""
    config = read_object(file)
    note = config.child("sentence_transformers")
    stated = note.text("activation_fn") if note else None
    return stated or config.text("sbert_ce_default_activation_function")


def _read_normalize(path: Path, modules: tuple[Module, ...] | None, *, is_late: bool) -> bool:
    folders = _folders(modules, ModuleKind.NORMALIZE)
    for folder in folders:
        file = path / folder / "config.json"
        # Early releases write no file: the module can only work on the pooled vector.
        if folder and is_present(file):
            refuse = refuse_other_vectors if is_late else _refuse_other_input
            refuse(read_object(file))
    return bool(folders)


def _refuse_other_input(config: JsonObject) -> None:
    for key in ("module_input_name", "module_output_name"):
        if config.text(key) not in (None, POOLED_VECTOR):
            config.refuse(key, f'"{POOLED_VECTOR}" (this release normalises the pooled vector)')
