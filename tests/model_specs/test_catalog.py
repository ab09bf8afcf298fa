"""The catalog: what its reader refuses, and that every entry is what this release compiles."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.compiler.options import compile_options
from infinity_v3.model_specs.catalog import (
    CatalogEntry,
    config_json,
    find_entries,
    parse_catalog,
    read_catalog,
)
from infinity_v3.model_specs.registry import SPECS, find_family
from infinity_v3.model_specs.spec import ModelSpec
from infinity_v3.model_specs.transformer_config import TransformerConfig, read_transformer_config
from infinity_v3.server.config import all_options
from infinity_v3.server.schemas import (
    ClassifyBody,
    EmbedAllBody,
    EmbedBody,
    EmbedSparseBody,
    PredictBody,
    PredictTokensBody,
    RerankBody,
    RoutedBody,
)

CATALOG = read_catalog()
IDS = [entry.id for entry in CATALOG]
BODIES: dict[Kind, dict[str, type[RoutedBody]]] = {
    Kind.EMBEDDING: {"/embed": EmbedBody},
    Kind.RERANKER: {"/rerank": RerankBody, "/v1/classify": ClassifyBody},
    Kind.CLASSIFIER: {"/v1/classify": ClassifyBody, "/predict": PredictBody},
    Kind.TOKEN_CLASSIFIER: {"/predict_tokens": PredictTokensBody},
    Kind.SPARSE: {"/embed_sparse": EmbedSparseBody},
    Kind.LATE_INTERACTION: {"/embed_all": EmbedAllBody},
}
"""Task -> routes that answer it, and the body each reads."""

# No public checkpoint with a head of its own was found.
FAMILIES_WITHOUT_ENTRY = {"qwen3_moe", "ministral"}

ENTRY = """
[[model]]
id = "org/name"
family = "bert"
task = "embedding"
pooling = "cls"
normalize = true
max_length = 512
prompts = { query = "query: " }
instruction = "Instruct: {instruction} Query: "
compile = { task = "embedding", max-sequence-length = 128 }
serve = { max-batch-tokens = 32768 }
request = { route = "/embed", body = { inputs = ["query: a"] } }
config = { model_type = "bert", architectures = ["BertModel"], hidden_size = 8 }
source = ["https://example.org/config.json"]
"""


def read_config(entry: CatalogEntry, folder: Path) -> TransformerConfig:
    file = folder / "config.json"
    file.write_text(config_json(entry), encoding="utf-8")
    return read_transformer_config(file)


def family_of(entry: CatalogEntry) -> ModelSpec:
    return next(spec for spec in SPECS if spec.family == entry.family)


@pytest.mark.parametrize("entry", CATALOG, ids=IDS)
def test_entry_resolves_to_its_family(entry: CatalogEntry, tmp_path: Path) -> None:
    config = read_config(entry, tmp_path)
    spec = find_family(config)
    assert spec.family == entry.family
    assert spec.is_built_in or not config.has_own_code


def test_entries_name_a_class_of_their_family(tmp_path: Path) -> None:
    for entry in CATALOG:
        architecture = read_config(entry, tmp_path).architecture
        known = (*family_of(entry).architectures, "HF_ColBERT")
        assert architecture is None or architecture.startswith(known), entry.id


def test_generative_checkpoints_say_what_to_make_of_them(tmp_path: Path) -> None:
    for entry in CATALOG:
        architecture = read_config(entry, tmp_path).architecture or ""
        is_silent = family_of(entry).is_generative and entry.task is Kind.EMBEDDING
        if is_silent or architecture.endswith(("ForMaskedLM", "ForCausalLM")):
            assert entry.compile_flags.get("task") == entry.task.value, entry.id


@pytest.mark.parametrize("entry", CATALOG, ids=IDS)
def test_server_reads_the_request(entry: CatalogEntry) -> None:
    body = BODIES[entry.task][entry.request.route]
    msgspec.convert(entry.request.body, body)
    assert entry.request.body.keys() <= set(body.__struct_fields__)


def test_request_of_an_embedder_writes_its_prefix() -> None:
    for entry in CATALOG:
        prefixes = [*entry.prompts.values()]
        if entry.instruction:
            prefixes = [entry.instruction.partition("{")[0]]
        if entry.task is Kind.EMBEDDING and prefixes:
            inputs = entry.request.body["inputs"]
            assert isinstance(inputs, list)
            assert inputs[0].startswith(tuple(prefixes)), entry.id


def test_flags_are_options_of_the_programs() -> None:
    compiling = {option.key for option in compile_options()}
    serving = {option.name for option in all_options()}
    assert {flag for entry in CATALOG for flag in entry.compile_flags} <= compiling
    assert {flag for entry in CATALOG for flag in entry.serve_flags} <= serving


def test_catalog_covers_families_and_tasks() -> None:
    families = Counter(entry.family for entry in CATALOG)
    assert len(CATALOG) >= 110
    assert {spec.family for spec in SPECS} - FAMILIES_WITHOUT_ENTRY == families.keys()
    assert {entry.task for entry in CATALOG} == BODIES.keys()


def test_every_key_is_read() -> None:
    (entry,) = parse_catalog(ENTRY)
    assert entry.id == "org/name"
    assert entry.name == "name"
    assert entry.task is Kind.EMBEDDING
    assert entry.normalize is True
    assert entry.max_length == 512
    assert entry.prompts == {"query": "query: "}
    assert entry.compile_flags == {"task": "embedding", "max-sequence-length": 128}
    assert entry.serve_flags == {"max-batch-tokens": 32768}
    assert entry.request.body == {"inputs": ["query: a"]}
    assert entry.config["hidden_size"] == 8
    assert entry.sources == ("https://example.org/config.json",)


def test_what_is_left_out_is_not_guessed() -> None:
    lines = [line for line in ENTRY.splitlines() if line]
    optional = ("pooling", "normalize", "max_", "prompts", "instruction", "compile", "serve")
    (entry,) = parse_catalog("\n".join(line for line in lines if not line.startswith(optional)))
    assert (entry.pooling, entry.normalize, entry.max_length) == (None, None, None)
    assert (entry.prompts, entry.instruction) == ({}, None)
    assert (entry.compile_flags, entry.serve_flags) == ({}, {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pooling =", "poling =", "org/name: poling: unknown key; did you mean pooling?"),
        ('"cls"', '"mid"', 'org/name: pooling: expected one of cls, mean, max, .*, found "mid"'),
        ('task = "embedding"\npool', 'task = "embed"\npool', "org/name: task: expected one of"),
        ('family = "bert"\n', "", "org/name: family: expected a text, found nothing"),
        ('id = "org/name"\n', "", "id: expected a text, found nothing"),
        ("= true", '= "yes"', "org/name: normalize: expected true or false"),
        ("= 512", "= 0", "org/name: max_length: expected a whole number from 1, found 0"),
        ('{ query = "query: " }', '["query: "]', "org/name: prompts: expected a table"),
        ('query = "query: "', "query = 1", "org/name: prompts: query: expected a text, found 1"),
        ("{instruction}", "", "org/name: instruction: expected a text with {instruction}"),
        ("= 32768", "= 1.5", "org/name: serve: max-batch-tokens: expected a whole number"),
        ('"/embed"', '"embed"', "org/name: request: route: expected a path that starts with /"),
        ("body = {", "bdy = {", "org/name: request: body: expected a table, found nothing"),
        ("route =", "x = 1, route =", "org/name: request: x: unknown key"),
        ("hidden_size = 8", "day = 2020-01-01", "org/name: config: expected texts, numbers"),
        ('model_type = "bert", ', "", "org/name: config: model_type: expected a text"),
        ('["https://example.org/config.json"]', "[]", "org/name: source: expected a list"),
        ("https://example", "example", "org/name: source: expected a list of addresses"),
        ("[[model]]", "[model]", "model: expected an array of tables"),
        ("[[model]]", "x = 1\n[[model]]", "catalog.toml: x: unknown key"),
        ("[[model]]", "[[model]", "catalog.toml: not valid TOML"),
    ],
)
def test_damaged_catalog(old: str, new: str, message: str) -> None:
    assert old in ENTRY
    with pytest.raises(UsageError, match=message.replace("[", r"\[").replace("?", r"\?")):
        parse_catalog(ENTRY.replace(old, new, 1))


def test_an_id_that_is_there_twice() -> None:
    with pytest.raises(UsageError, match=r"ORG/name: expected each id once, found it twice"):
        parse_catalog(ENTRY + ENTRY.replace("org/name", "ORG/name"))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("BAAI/bge-m3", {"BAAI/bge-m3"}),
        (" baai/BGE-M3 ", {"BAAI/bge-m3"}),
        ("splade distilbert", {"naver/splade_v2_distil"}),
        ("ultrabert", {"dmis-lab/UltraBERT-Embed-150M"}),
        ("no such model", set()),
    ],
)
def test_find_entries(query: str, found: set[str]) -> None:
    assert {entry.id for entry in find_entries(CATALOG, query)} == found


def test_no_words_find_everything() -> None:
    assert find_entries(CATALOG, "") == CATALOG
