"""A checkpoint directory becomes typed values; whatever is wrong in it is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import PoolingMode, Prompts
from infinity_v3.model_specs.dense_config import Activation
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.module_list import ModuleKind
from tiny_checkpoints import (
    FAMILIES,
    IDENTITY,
    TinyDense,
    duplicate_json_key,
    make_tiny_checkpoint,
    remove_json_key,
    remove_tokenizer,
    set_json_key,
    write_json,
)


def test_real_checkpoint_is_read_completely(minilm: Path) -> None:
    config = read_hub_config(minilm)
    assert config.path == config.encoder_path == minilm
    assert (config.model.model_type, config.model.architectures) == ("bert", ("BertModel",))
    assert (config.model.hidden_size, config.model.vocab_size) == (384, 30522)
    assert (config.model.num_hidden_layers, config.model.num_attention_heads) == (6, 12)
    assert (config.model.max_position_embeddings, config.model.type_vocab_size) == (512, 2)
    assert (config.model.pad_token_id, config.model.dtype, config.model.labels) == (0, None, ())
    traits = (config.model.is_decoder, config.model.is_quantized, config.model.has_own_code)
    assert not any(traits)
    assert config.modules is not None
    assert [(module.kind.value, module.folder) for module in config.modules] == [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("Normalize", "2_Normalize"),
    ]
    assert config.pooling is not None
    assert (config.pooling.modes, config.pooling.width) == ((PoolingMode.MEAN,), 384)
    assert (config.dense, config.normalize) == ((), True)
    assert config.sentence is not None
    assert (config.sentence.max_seq_length, config.sentence.do_lower_case) == (256, False)
    assert config.sentence.file == minilm / "sentence_bert_config.json"
    assert (config.prompts, config.similarity) == (Prompts(), None)
    assert config.tokenizer.tokenizer == minilm / "tokenizer.json"
    names = [file.name for file in config.tokenizer.companions]
    assert names == ["tokenizer_config.json", "special_tokens_map.json"]
    assert (config.tokenizer.num_special_tokens, config.tokenizer.truncation_side) == (2, "right")
    assert (config.tokenizer.model_max_length, config.tokenizer.default_template) == (512, None)
    assert config.license == "apache-2.0"
    assert config.files == (
        "1_Pooling/config.json",
        "config.json",
        "config_sentence_transformers.json",
        "modules.json",
        "sentence_bert_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_are_found_under_the_names_of_each_family(
    checkpoints: dict[str, Path], family: str
) -> None:
    model = read_hub_config(checkpoints[family]).model
    assert model.model_type == family
    assert (model.hidden_size, model.num_hidden_layers, model.num_attention_heads) == (32, 2, 4)
    assert model.max_position_embeddings == (512 if family in ("bert", "distilbert") else 514)
    assert model.dtype == "float32"
    content = json.loads((checkpoints[family] / "tokenizer.json").read_text(encoding="utf-8"))
    assert model.vocab_size == 1 + max(
        *content["model"]["vocab"].values()
        if isinstance(content["model"]["vocab"], dict)
        else (len(content["model"]["vocab"]) - 1, 0),
        *(token["id"] for token in content["added_tokens"]),
    )


def test_dense_prompts_and_similarity_are_read(tmp_path: Path) -> None:
    layers = (
        TinyDense(out_features=24),
        TinyDense(out_features=16, activation=IDENTITY, bias=False),
    )
    path = make_tiny_checkpoint(
        "bert",
        tmp_path,
        dense=layers,
        normalize=False,
        prompts={"query": "query: ", "document": ""},
        default_prompt_name="query",
        similarity="dot",
    )
    config = read_hub_config(path)
    assert [layer.folder for layer in config.dense] == ["2_Dense", "3_Dense"]
    assert [(layer.in_features, layer.out_features) for layer in config.dense] == [
        (32, 24),
        (24, 16),
    ]
    assert [layer.activation for layer in config.dense] == [Activation.TANH, Activation.IDENTITY]
    assert [layer.has_bias for layer in config.dense] == [True, False]
    assert config.dense[0].weights == path / "2_Dense" / "model.safetensors"
    assert not config.normalize
    assert config.prompts == Prompts(named={"query": "query: ", "document": ""}, default="query")
    assert config.similarity == "dot"
    assert {"2_Dense/config.json", "3_Dense/config.json"} <= set(config.files)


def test_checkpoint_saved_by_the_installed_sentence_transformers_reads_alike(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    SentenceTransformer(str(checkpoints["roberta"]), device="cpu").save(str(tmp_path / "saved"))
    saved, original = read_hub_config(tmp_path / "saved"), read_hub_config(checkpoints["roberta"])
    assert saved.modules == original.modules
    assert saved.pooling is not None
    assert original.pooling is not None
    assert (saved.pooling.modes, saved.pooling.width) == (original.pooling.modes, 32)
    assert (saved.dense, saved.normalize) == (original.dense, original.normalize)
    assert saved.model.sizes == original.model.sizes


def test_module_names_of_every_release_are_known(checkpoints: dict[str, Path], bert: Path) -> None:
    assert (
        read_hub_config(make_tiny_checkpoint("bert", bert, new_names=True)).modules
        == read_hub_config(checkpoints["bert"]).modules
    )
    for home in (
        "sentence_transformers.models",
        "sentence_transformers.sentence_transformer.modules",
    ):
        rows = json.loads((bert / "modules.json").read_text(encoding="utf-8"))
        for row in rows:
            name = row["type"].rpartition(".")[2]
            row["type"] = f"{home}.{name}.{name}" if home.endswith("models") else f"{home}.{name}"
        write_json(bert / "modules.json", rows)
        modules = read_hub_config(bert).modules
        assert modules is not None
        assert [module.kind for module in modules] == [
            ModuleKind.TRANSFORMER,
            ModuleKind.POOLING,
            ModuleKind.NORMALIZE,
        ]


def test_encoder_in_a_folder_of_its_own_is_found(bert: Path) -> None:
    folder = bert / "0_Transformer"
    folder.mkdir()
    for file in [file for file in bert.iterdir() if file.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(folder / file.name)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 77})
    rows = json.loads((bert / "modules.json").read_text(encoding="utf-8"))
    rows[0]["path"] = "0_Transformer"
    write_json(bert / "modules.json", rows)
    config = read_hub_config(bert)
    assert config.encoder_path == folder
    assert config.sentence is not None
    assert config.sentence.max_seq_length == 77
    assert {"0_Transformer/config.json", "0_Transformer/tokenizer.json"} <= set(config.files)


def test_nested_text_config_gives_the_sizes_that_the_top_lacks(bert: Path) -> None:
    document = json.loads((bert / "config.json").read_text(encoding="utf-8"))
    sizes = {key: document.pop(key) for key in ("vocab_size", "num_hidden_layers")}
    write_json(bert / "config.json", {**document, "text_config": {**sizes, "hidden_size": 999}})
    model = read_hub_config(bert).model
    assert (model.vocab_size, model.num_hidden_layers) == (
        sizes["vocab_size"],
        sizes["num_hidden_layers"],
    )
    assert model.hidden_size == 32


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ({"dtype": "bfloat16", "torch_dtype": "float32"}, "bfloat16"),
        ({"dtype": None, "torch_dtype": "torch.float16"}, "float16"),
        ({"dtype": None}, None),
    ],
)
def test_dtype_under_its_old_and_new_name(
    bert: Path, keys: dict[str, str | None], dtype: str | None
) -> None:
    for key, value in keys.items():
        set_json_key(bert / "config.json", key, value)
    assert read_hub_config(bert).model.dtype == dtype


def test_labels_are_in_id_order(bert: Path) -> None:
    set_json_key(bert / "config.json", "id2label", {"2": "c", "0": "a", "1": "b"})
    assert read_hub_config(bert).model.labels == ("a", "b", "c")
    remove_json_key(bert / "config.json", "id2label")
    set_json_key(bert / "config.json", "label2id", {"y": 1, "x": 0})
    assert read_hub_config(bert).model.labels == ("x", "y")


def test_first_present_sentence_config_counts(bert: Path) -> None:
    write_json(bert / "sentence_xlnet_config.json", {"max_seq_length": 3})
    write_json(bert / "sentence_roberta_config.json", {"max_seq_length": 33})
    write_json(bert / "sentence_distilbert_config.json", {"max_seq_length": 44})
    sentence = read_hub_config(bert).sentence
    assert sentence is not None
    assert sentence.max_seq_length == 33
    write_json(bert / "sentence_bert_config.json", {"max_seq_length": None})
    sentence = read_hub_config(bert).sentence
    assert sentence is not None
    assert sentence.max_seq_length is None


@pytest.mark.parametrize(
    ("normalizer", "must_lower"),
    [
        (None, True),
        ({"type": "NFC"}, True),
        ({"type": "BertNormalizer", "lowercase": False}, True),
        ({"type": "BertNormalizer", "lowercase": True}, False),
        ({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}, False),
    ],
)
def test_lowering_is_asked_for_only_where_the_tokenizer_does_not(
    bert: Path, normalizer: object, must_lower: bool
) -> None:
    set_json_key(bert / "tokenizer.json", "normalizer", normalizer)
    assert not read_hub_config(bert).must_lower_text
    write_json(bert / "sentence_bert_config.json", {"do_lower_case": True})
    assert read_hub_config(bert).must_lower_text is must_lower


@pytest.mark.parametrize(
    ("readme", "expected"),
    [
        ("---\nlicense: mit\n---\n# Model", "mit"),
        ('---\nlanguage: en\nlicense: "apache-2.0" # comment\n---\n', "apache-2.0"),
        ("---\nlicense:\n- mit\n- other\n---\n", None),
        ("---\nlicense: [mit]\n---\n", None),
        ("---\nlicense: mit\n", None),
        ("license: mit\n", None),
        ("---\nx: 1\n---\nlicense: mit\n", None),
    ],
)
def test_license_is_taken_from_plain_front_matter(
    bert: Path, readme: str, expected: str | None
) -> None:
    (bert / "README.md").write_text(readme, encoding="utf-8")
    assert read_hub_config(bert).license == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(512, 512), (1e30, None), (10**30, None), (None, None), (8192, 8192)],
)
def test_absurd_tokenizer_limits_count_as_none(
    bert: Path, value: object, expected: int | None
) -> None:
    set_json_key(bert / "tokenizer_config.json", "model_max_length", value)
    assert read_hub_config(bert).tokenizer.model_max_length == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_number_of_special_tokens_is_that_of_the_tokenizer(
    checkpoints: dict[str, Path], family: str
) -> None:
    path = checkpoints[family]
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    expected = tokenizer.num_special_tokens_to_add(is_pair=False)
    assert read_hub_config(path).tokenizer.num_special_tokens == expected == 2


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (None, 0),
        ({"type": "ByteLevel", "trim_offsets": True}, 0),
        ({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}, 2),
        (
            {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "BertProcessing"}]},
            2,
        ),
    ],
)
def test_number_of_special_tokens_of_other_post_processors(
    bert: Path, processor: object, expected: int
) -> None:
    set_json_key(bert / "tokenizer.json", "post_processor", processor)
    assert read_hub_config(bert).tokenizer.num_special_tokens == expected


def test_bare_checkpoint_has_neither_modules_nor_pooling(tmp_path: Path) -> None:
    config = read_hub_config(make_tiny_checkpoint("camembert", tmp_path, pooling=None))
    assert (config.modules, config.pooling, config.normalize) == (None, None, False)
    assert config.sentence is None


def test_pooling_without_a_module_list_is_found(bert: Path) -> None:
    (bert / "modules.json").unlink()
    config = read_hub_config(bert)
    assert config.modules is None
    assert config.pooling is not None
    assert config.pooling.modes == (PoolingMode.MEAN,)


def test_chat_template_is_found(bert: Path) -> None:
    (bert / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    config = read_hub_config(bert)
    template = config.tokenizer.default_template
    assert template is not None
    assert (template.file, template.source) == (bert / "chat_template.jinja", "{{ messages }}")
    assert "chat_template.jinja" in config.files


def edit(file: str, key: str, value: object) -> Callable[[Path], object]:
    return lambda path: set_json_key(path / file, key, value)


def edit_module(index: int, key: str, value: object) -> Callable[[Path], object]:
    def apply(path: Path) -> None:
        rows = json.loads((path / "modules.json").read_text(encoding="utf-8"))
        rows[index][key] = value
        write_json(path / "modules.json", rows)

    return apply


def remove(file: str) -> Callable[[Path], object]:
    return lambda path: (path / file).unlink()


def only_slow_tokenizer(path: Path) -> None:
    remove_tokenizer(path)
    (path / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")


def only_adapter(path: Path) -> None:
    (path / "config.json").rename(path / "adapter_config.json")


def only_artifact(path: Path) -> None:
    (path / "config.json").rename(path / "artifact.json")


LSTM = "sentence_transformers.models.LSTM"
REFUSALS: list[tuple[Callable[[Path], object], list[str]]] = [
    (shutil.rmtree, ["expected a checkpoint directory"]),
    (only_artifact, ["expected a checkpoint, found an artifact", "infinity_v3 --model-id"]),
    (remove("config.json"), ["config.json: expected the configuration of a transformers model"]),
    (only_adapter, ["an adapter only", "merge it into its base model"]),
    (remove_tokenizer, ["tokenizer.json: expected a fast tokenizer, found no tokenizer"]),
    (only_slow_tokenizer, ["found only vocab.txt", "save_pretrained"]),
    (edit("tokenizer.json", "model", None), ["tokenizer.json: model:"]),
    (edit("tokenizer_config.json", "truncation_side", "up"), ["truncation_side", '"up"']),
    (edit("tokenizer_config.json", "model_max_length", 0), ["model_max_length"]),
    (
        lambda path: duplicate_json_key(path / "config.json", "hidden_size"),
        ["hidden_size", "twice"],
    ),
    (edit("config.json", "model_type", None), ["config.json: model_type:", "found nothing"]),
    (edit("config.json", "model_type", 5), ["config.json: model_type:", "found 5"]),
    (edit("config.json", "hidden_size", "32"), ["config.json: hidden_size:", '"32"']),
    (edit("config.json", "vocab_size", 10**12), ["config.json: vocab_size:", "1000000000000"]),
    (edit("config.json", "vocab_size", -1), ["config.json: vocab_size:", "found -1"]),
    (edit("config.json", "layer_norm_eps", "x"), ["config.json: layer_norm_eps:", 'found "x"']),
    (edit("config.json", "layer_norm_eps", -1.0), ["config.json: layer_norm_eps:", "found -1.0"]),
    (edit("config.json", "layer_norm_eps", 0), ["layer_norm_eps: expected a finite number above"]),
    (edit("config.json", "layer_norm_eps", True), ["config.json: layer_norm_eps:", "found true"]),
    (edit("config.json", "layer_norm_eps", float("nan")), ["layer_norm_eps:", "found NaN"]),
    (edit("config.json", "layer_norm_eps", float("inf")), ["layer_norm_eps:", "found Infinity"]),
    (edit("config.json", "layer_norm_eps", 10**400), ["layer_norm_eps:", "found a larger number"]),
    (edit("config.json", "text_config", []), ["config.json: text_config:"]),
    (edit("config.json", "architectures", "BertModel"), ["config.json: architectures:"]),
    (edit("config.json", "id2label", {"0": "a", "2": "b"}), ["config.json: id2label:", "gap"]),
    (edit("config.json", "id2label", {"x": "a"}), ["config.json: id2label.x:"]),
    (edit("config.json", "id2label", {"0": "a", "00": "b"}), ["config.json: id2label:"]),
    (edit("config.json", "is_decoder", "no"), ["config.json: is_decoder:"]),
    (edit_module(1, "type", LSTM), ["modules.json: [1].type:", LSTM, "does not compile"]),
    (edit_module(0, "type", "custom_st.Transformer"), ["modules.json: [0].type:", "custom_st"]),
    (edit_module(1, "type", None), ["modules.json: [1].type:"]),
    (edit_module(1, "path", "../other"), ["modules.json: [1].path:", "inside the checkpoint"]),
    (edit_module(1, "path", "/etc"), ["modules.json: [1].path:"]),
    (edit_module(1, "path", "a\u0000b"), ["modules.json: [1].path:"]),
    (edit_module(1, "path", "é" * 150), ["modules.json: [1].path:"]),
    (lambda path: write_json(path / "modules.json", []), ["modules.json:", "found nothing"]),
    (lambda path: write_json(path / "modules.json", {}), ["modules.json: expected a JSON list"]),
    (edit_module(2, "type", "sentence_transformers.models.Pooling"), ["Pooling, Pooling"]),
    (edit_module(1, "path", "9_Pooling"), ["9_Pooling/config.json: expected a file"]),
    (edit("1_Pooling/config.json", "pooling_mode", "median"), ["pooling_mode:", '"median"']),
    (edit("1_Pooling/config.json", "pooling_mode", []), ["pooling_mode:"]),
    (edit("1_Pooling/config.json", "pooling_mode", ["cls", "cls"]), ["pooling_mode:"]),
    (edit("1_Pooling/config.json", "pooling_mode_cls_token", 1), ["pooling_mode_cls_token:"]),
    (edit("1_Pooling/config.json", "include_prompt", False), ["include_prompt:", "prompt"]),
    (edit("2_Dense/config.json", "in_features", None), ["2_Dense/config.json: in_features:"]),
    (
        edit("2_Dense/config.json", "activation_function", "mine.Swish"),
        ["mine.Swish"],
    ),
    (edit("2_Dense/config.json", "use_residual", True), ["use_residual:", "residual path"]),
    (edit("2_Dense/config.json", "module_input_name", "token_embeddings"), ["module_input_name:"]),
    (remove("2_Dense/model.safetensors"), ["2_Dense/model.safetensors:", "safe_serialization"]),
    (
        lambda path: write_json(
            path / "3_Normalize/config.json", {"module_input_name": "token_embeddings"}
        ),
        ["3_Normalize/config.json: module_input_name:"],
    ),
    (
        edit("config_sentence_transformers.json", "prompts", {"q": 1}),
        ["prompts.q:"],
    ),
    (edit("config_sentence_transformers.json", "prompts", {"q": None}), ["prompts.q:"]),
    (
        edit("config_sentence_transformers.json", "default_prompt_name", "x"),
        ["default_prompt_name"],
    ),
    (edit("config_sentence_transformers.json", "similarity_fn_name", "hamming"), ["hamming"]),
    (edit("sentence_bert_config.json", "max_seq_length", 0), ["max_seq_length:", "found 0"]),
    (edit("sentence_bert_config.json", "transformer_task", "fill-mask"), ["fill-mask"]),
    (edit("sentence_bert_config.json", "module_output_name", "logits"), ["module_output_name"]),
]


@pytest.fixture(scope="session")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with every file that is read; read only."""
    path = tmp_path_factory.mktemp("rich") / "model"
    layers = (TinyDense(out_features=32),)
    prompts = {"query": "query: "}
    return make_tiny_checkpoint("bert", path, dense=layers, prompts=prompts, max_seq_length=64)


@pytest.mark.parametrize(("damage", "fragments"), REFUSALS)
def test_damage_is_one_sentence_that_names_file_and_key(
    rich: Path, tmp_path: Path, damage: Callable[[Path], object], fragments: list[str]
) -> None:
    path = Path(shutil.copytree(rich, tmp_path / "model"))
    read_hub_config(path)
    damage(path)
    with pytest.raises(UsageError) as caught:
        read_hub_config(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message


def test_key_of_a_nested_object_counts_only_where_the_top_lacks_it(bert: Path) -> None:
    set_json_key(bert / "config.json", "text_config", {"vocab_size": []})
    assert read_hub_config(bert).model.vocab_size > 0
    remove_json_key(bert / "config.json", "vocab_size")
    with pytest.raises(UsageError, match=r"config.json: text_config.vocab_size: expected a whole"):
        read_hub_config(bert)


def test_missing_size_is_named_when_it_is_needed(bert: Path) -> None:
    remove_json_key(bert / "config.json", "hidden_size")
    model = read_hub_config(bert).model
    with pytest.raises(UsageError, match=r"config.json: hidden_size: expected a whole number"):
        _ = model.hidden_size


def test_link_to_nowhere_is_not_taken_for_absent(bert: Path) -> None:
    (bert / "sentence_bert_config.json").symlink_to(bert / "gone.json")
    with pytest.raises(UsageError, match=r"sentence_bert_config.json: expected a file, found none"):
        read_hub_config(bert)
