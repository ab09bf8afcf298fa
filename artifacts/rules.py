"""What a well-typed manifest must also satisfy: names, paths, digests, references between parts.

Each function refuses with the path of the key at fault. Does no I/O.
"""

from collections.abc import Mapping

from infinity_v3.artifacts.decision import check_decision
from infinity_v3.artifacts.graph_rules import check_graph
from infinity_v3.artifacts.head_rules import check_heads
from infinity_v3.artifacts.layout import FOLDERS
from infinity_v3.artifacts.manifest import (
    ChatTemplate,
    FileEntry,
    KeptProgram,
    Kind,
    Manifest,
    ModelFacts,
    Prompts,
    Requirements,
    SharedWeights,
    Source,
    Target,
    Tokenizer,
)
from infinity_v3.artifacts.names import NAME_RULE, is_name, is_sha256, path_problem
from infinity_v3.artifacts.typed_json import Location, show
from infinity_v3.artifacts.value_rules import check_at_least, check_choice, check_unique


def check_manifest(manifest: Manifest, at: Location) -> None:
    """Refuse a manifest whose parts do not fit together.

    Raises:
        RefusedError: names the first key that breaks a rule.
    """
    check_name(manifest.name, at.key("name"))
    _check_model(manifest.model, at.key("model"))
    check_heads(manifest, at.key("heads"))
    _check_prompts(manifest.prompts, at.key("prompts"))
    check_graph(manifest.graph, at.key("graph"))
    _check_decision(manifest, at.key("decision"))
    files = _check_files(manifest.files, at.key("files"))
    _check_folders(manifest.files, at.key("files"))
    _check_tokenizer(manifest.tokenizer, files, at.key("tokenizer"))
    _check_weights(manifest, files, at.key("weights"))
    _check_program(manifest.program, files, at.key("program"))
    _check_targets(manifest, files, at.key("targets"))
    _check_all_used(manifest, at)
    _check_source(manifest.source, at.key("source"))


def check_name(value: str, at: Location) -> None:
    """Refuse a string that may not name anything; called before a path is built from it."""
    if not is_name(value):
        raise at.refuse(f"expected a name ({NAME_RULE}), found {show(value)}")


def _check_sha256(value: str, at: Location) -> None:
    if not is_sha256(value):
        raise at.refuse(f"expected 64 hex digits, found {show(value)}")


def _check_path(path: str, at: Location) -> None:
    problem = path_problem(path)
    if problem is not None:
        raise at.refuse(f"expected a relative path with '/', found {problem}: {show(path)}")


def _check_listed(path: str, files: Mapping[str, FileEntry], at: Location) -> None:
    if path not in files:
        raise at.refuse(f"expected a path of 'files', found {show(path)}")


def _check_model(model: ModelFacts, at: Location) -> None:
    for key in ("hidden_size", "vocab_size", "num_parameters", "max_input_tokens"):
        check_at_least(1, getattr(model, key), at.key(key))
    check_at_least(0, model.position_offset, at.key("position_offset"))


def _check_decision(manifest: Manifest, at: Location) -> None:
    is_decision = manifest.kind is Kind.DECISION
    if is_decision != (manifest.decision is not None):
        expected, found = ("an object", "null") if is_decision else ("null", "an object")
        raise at.refuse(f"expected {expected} for kind {manifest.kind.value}, found {found}")
    if manifest.decision is not None:
        model = manifest.model
        check_decision(manifest.decision, model.vocab_size, model.max_input_tokens, at)


def _check_prompts(prompts: Prompts, at: Location) -> None:
    if prompts.default is not None and prompts.default not in prompts.named:
        raise at.key("default").refuse(f"expected a key of 'named', found {show(prompts.default)}")


def _check_files(entries: tuple[FileEntry, ...], at: Location) -> Mapping[str, FileEntry]:
    previous = ""
    for index, entry in enumerate(entries):
        _check_entry(entry, at.item(index))
        if entry.path == previous:
            raise at.item(index).key("path").refuse(f"duplicate path {show(entry.path)}")
        if entry.path < previous:
            where = at.item(index).key("path")
            raise where.refuse(f"expected files sorted by path, found it after {show(previous)}")
        previous = entry.path
    return {entry.path: entry for entry in entries}


def _check_folders(entries: tuple[FileEntry, ...], at: Location) -> None:
    for index, entry in enumerate(entries):
        folder, slash, _ = entry.path.partition("/")
        if not slash or folder not in FOLDERS:
            where = at.item(index).key("path")
            expected = f"expected a path below {', '.join(FOLDERS)}"
            raise where.refuse(f"{expected}; found {show(entry.path)}")


def _check_entry(entry: FileEntry, at: Location) -> None:
    _check_path(entry.path, at.key("path"))
    check_at_least(0, entry.num_bytes, at.key("bytes"))
    _check_sha256(entry.sha256, at.key("sha256"))


def _check_tokenizer(tokenizer: Tokenizer, files: Mapping[str, FileEntry], at: Location) -> None:
    _check_listed(tokenizer.file, files, at.key("file"))
    check_at_least(1, tokenizer.length.max_tokens, at.key("length").key("max_tokens"))
    check_choice(tokenizer.special_tokens, ("template", "none"), at.key("special_tokens"))
    check_choice(tokenizer.truncation_side, ("left", "right"), at.key("truncation_side"))
    if tokenizer.chat_template is not None:
        _check_chat_template(tokenizer.chat_template, files, at.key("chat_template"))


def _check_chat_template(
    template: ChatTemplate, files: Mapping[str, FileEntry], at: Location
) -> None:
    _check_below("tokenizer/", template.file, at.key("file"))
    _check_listed(template.file, files, at.key("file"))
    if not template.takes_text and not template.takes_parts:
        raise at.key("takes_parts").refuse("expected true where takes_text is false, found false")


def _check_weights(manifest: Manifest, files: Mapping[str, FileEntry], at: Location) -> None:
    check_unique(
        (shared.precision.value for shared in manifest.weights), "precision", at, "precision"
    )
    for index, shared in enumerate(manifest.weights):
        _check_shared(shared, files, at.item(index))


def _check_shared(shared: SharedWeights, files: Mapping[str, FileEntry], at: Location) -> None:
    expected = f"weights/{shared.precision.value}.safetensors"
    if shared.path != expected:
        raise at.key("path").refuse(f"expected {show(expected)}, found {show(shared.path)}")
    _check_listed(shared.path, files, at.key("path"))


def _check_program(
    programs: tuple[KeptProgram, ...], files: Mapping[str, FileEntry], at: Location
) -> None:
    check_unique((program.precision.value for program in programs), "precision", at, "precision")
    for index, program in enumerate(programs):
        prefix = f"program/{program.precision.value}/"
        for position, path in enumerate(program.files):
            where = at.item(index).key("files").item(position)
            _check_listed(path, files, where)
            _check_below(prefix, path, where)


def _check_below(prefix: str, path: str, at: Location) -> None:
    if not path.startswith(prefix):
        raise at.refuse(f"expected a path below {show(prefix)}, found {show(path)}")


def _check_targets(manifest: Manifest, files: Mapping[str, FileEntry], at: Location) -> None:
    if not manifest.targets:
        raise at.refuse("expected at least one target, found none")
    check_unique((target.name for target in manifest.targets), "target", at, "name")
    precisions = {shared.precision for shared in manifest.weights}
    for index, target in enumerate(manifest.targets):
        where = at.item(index)
        _check_target(target, files, where)
        if target.weights is not None and target.weights not in precisions:
            raise where.key("weights").refuse(
                f"expected a precision of 'weights', found {show(target.weights.value)}"
            )


def _check_target(target: Target, files: Mapping[str, FileEntry], at: Location) -> None:
    check_name(target.name, at.key("name"))
    _check_requirements(target.requires, at.key("requires"))
    check_at_least(1, target.limits.max_tokens, at.key("limits").key("max_tokens"))
    check_at_least(1, target.limits.max_sequences, at.key("limits").key("max_sequences"))
    check_at_least(0, target.parity.probe_count, at.key("parity").key("probe_count"))
    _check_files(target.files, at.key("files"))
    for index, entry in enumerate(target.files):
        _check_target_file(entry, target, files, at.key("files").item(index))
    if target.entry not in {entry.path for entry in target.files}:
        raise at.key("entry").refuse(
            f"expected a path of this target's 'files', found {show(target.entry)}"
        )


def _check_target_file(
    entry: FileEntry, target: Target, files: Mapping[str, FileEntry], at: Location
) -> None:
    _check_below(f"targets/{target.name}/", entry.path, at.key("path"))
    _check_listed(entry.path, files, at.key("path"))
    listed = files[entry.path]
    for key, found, expected in (
        ("bytes", entry.num_bytes, listed.num_bytes),
        ("sha256", entry.sha256, listed.sha256),
    ):
        if found != expected:
            raise at.key(key).refuse(
                f"expected {show(expected)} as in 'files', found {show(found)}"
            )


def _check_requirements(requires: Requirements, at: Location) -> None:
    check_name(requires.arch, at.key("arch"))
    for index, flag in enumerate(requires.isa):
        check_name(flag, at.key("isa").item(index))
    if requires.torch is not None:
        _check_torch_minor(requires.torch, at.key("torch"))


def _check_torch_minor(minor: str, at: Location) -> None:
    parts = minor.split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise at.refuse(f"expected a torch minor such as '2.13', found {show(minor)}")


def _check_all_used(manifest: Manifest, at: Location) -> None:
    """Refuse shared weights without a target, and files that no part of the manifest names."""
    users = {target.weights for target in manifest.targets}
    for index, shared in enumerate(manifest.weights):
        if shared.precision not in users:
            raise at.key("weights").item(index).refuse("no target uses these weights")
    named = {entry.path for target in manifest.targets for entry in target.files}
    named.update(shared.path for shared in manifest.weights)
    named.update(path for program in manifest.program for path in program.files)
    for index, entry in enumerate(manifest.files):
        if not entry.path.startswith("tokenizer/") and entry.path not in named:
            where = at.key("files").item(index).key("path")
            raise where.refuse(f"no part of the manifest names {show(entry.path)}")


def _check_source(source: Source, at: Location) -> None:
    check_unique((file.path for file in source.files), "path", at.key("files"), "path")
    for index, file in enumerate(source.files):
        where = at.key("files").item(index)
        _check_path(file.path, where.key("path"))
        _check_sha256(file.sha256, where.key("sha256"))
