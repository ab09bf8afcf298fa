"""Builds the tokenizers of the tiny checkpoints: WordPiece, byte-pair encodings and Unigram.

Knows nothing of models. Vocabularies are spelled out from the lists of `tiny_words`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import tiny_decoder_tokenizers as decoder_recipes
from tiny_bpe import byte_level_backend, token_id
from tiny_decoder_tokenizers import BpeRecipe, build_backend
from tiny_words import PUNCTUATION, characters, words

# The generic class gives a model token types only where it is told to.
_WITH_TYPES: Mapping[str, object] = {
    "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]
}


@dataclass(frozen=True, kw_only=True)
class TinyTokenizer:
    """A tokenizer and what else the checkpoint must say about it.

    Attributes:
        backend: with normaliser, pre-tokeniser, post-processor and decoder.
        special_tokens: as in special_tokens_map.json, e.g. {"cls_token": "[CLS]"}.
        config_ids: token ids for config.json, e.g. {"pad_token_id": 0}.
        settings: further keys of tokenizer_config.json.
    """

    backend: Tokenizer
    special_tokens: Mapping[str, str]
    config_ids: Mapping[str, int]
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        """Rows that the word embedding needs."""
        return int(self.backend.get_vocab_size())


def build_tokenizer(kind: str) -> TinyTokenizer:
    """Build a tokenizer by its name; the five first families' names are tokenizers' names too."""
    return _builders()[kind]()


def tokenizer_kinds() -> tuple[str, ...]:
    """Every name that `build_tokenizer` knows."""
    return tuple(_builders())


def _builders() -> Mapping[str, Callable[[], TinyTokenizer]]:
    recipes = {
        "qwen": decoder_recipes.qwen(append_end=False),
        "qwen-embedding": decoder_recipes.qwen(append_end=True),
        "llama3": decoder_recipes.llama3(),
        "eurobert": decoder_recipes.eurobert(),
        "modernbert": decoder_recipes.modernbert(),
        "ultrabert": decoder_recipes.ultrabert(),
        "tekken": decoder_recipes.tekken(),
        "mistral": decoder_recipes.mistral(append_end=False),
        "mistral-embedding": decoder_recipes.mistral(append_end=True),
        "gemma": decoder_recipes.gemma(append_end=False),
        "embedding-gemma": decoder_recipes.gemma(append_end=True),
    }
    return {
        "bert": partial(_wordpiece, settings=_WITH_TYPES),
        "distilbert": _wordpiece,
        "mpnet": _wordpiece_mpnet,
        "colbert": partial(_wordpiece, ("[unused0]", "[unused1]"), _WITH_TYPES),
        "roberta": _byte_level_bpe,
        "xlm-roberta": _unigram_xlm_roberta,
        "camembert": _unigram_camembert,
        "deberta": _unigram_deberta,
        **{name: partial(_from_recipe, recipe) for name, recipe in recipes.items()},
    }


def _from_recipe(recipe: BpeRecipe) -> TinyTokenizer:
    backend = build_backend(recipe)
    settings: dict[str, object] = {"padding_side": recipe.padding_side}
    if recipe.chat_template is not None:
        settings["chat_template"] = recipe.chat_template
    return TinyTokenizer(
        backend=backend,
        special_tokens=recipe.names,
        config_ids={name: token_id(backend, token) for name, token in recipe.id_names.items()},
        settings=settings,
    )


def write_tokenizer(tokenizer: TinyTokenizer, path: Path, *, model_max_length: int) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json."""
    tokenizer.backend.save(str(path / "tokenizer.json"))
    specials = dict(tokenizer.special_tokens)
    # The generic class reads tokenizer.json as it is; family classes of transformers rebuild parts
    # of it.
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model_max_length}
    names = {
        "tokenizer_config.json": {**config, **tokenizer.settings, **specials},
        "special_tokens_map.json": specials,
    }
    for name, document in names.items():
        (path / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _wordpiece(
    extra: tuple[str, ...] = (), settings: Mapping[str, object] | None = None
) -> TinyTokenizer:
    specials = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    backend = _wordpiece_backend(specials, extra)
    backend.add_special_tokens(list(specials))
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return TinyTokenizer(
        backend=backend,
        special_tokens=_bert_specials(),
        config_ids={"pad_token_id": 0},
        settings=settings or {},
    )


def _wordpiece_mpnet() -> TinyTokenizer:
    # MPNet knows both its own <unk> and BERT's [UNK]; the pieces use the latter.
    backend = _wordpiece_backend(("<s>", "<pad>", "</s>", "<unk>"), ("[UNK]", "<mask>"))
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return TinyTokenizer(
        backend=backend,
        special_tokens={**_roberta_specials(), "unk_token": "[UNK]"},
        config_ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
    )


def _wordpiece_backend(front: tuple[str, ...], extra: tuple[str, ...]) -> Tokenizer:
    normalizer = normalizers.BertNormalizer(lowercase=True)
    listed = [normalizer.normalize_str(word).strip() for word in words()]
    letters = sorted({character for word in listed for character in word} | set(PUNCTUATION))
    endings = ["##ing", "##er", "##es", "##ed", "##ings"]
    pieces = [*letters, *("##" + letter for letter in letters), *endings, *listed, *extra]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys([*front, *pieces]))}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def _byte_level_bpe() -> TinyTokenizer:
    front = ["<s>", "<pad>", "</s>", "<unk>"]
    backend = byte_level_backend(front, words(), ["<mask>"], split=False)
    backend.add_special_tokens([*front, "<mask>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return TinyTokenizer(
        backend=backend,
        special_tokens=_roberta_specials(),
        config_ids={"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
    )


def _unigram_xlm_roberta() -> TinyTokenizer:
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    return _unigram(["<s>", "<pad>", "</s>", "<unk>"], ids)


def _unigram_camembert() -> TinyTokenizer:
    # CamemBERT's own vocabulary keeps unused rows in front, so its start and end tokens are 5 and
    # 6.
    front = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    return _unigram(front, {"bos_token_id": 5, "pad_token_id": 1, "eos_token_id": 6})


def _unigram_deberta() -> TinyTokenizer:
    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    backend = _unigram_backend(specials, "[MASK]")
    backend.add_special_tokens([*specials, "[MASK]"])
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return TinyTokenizer(
        backend=backend,
        special_tokens=_bert_specials(),
        config_ids={"pad_token_id": 0},
        settings=_WITH_TYPES,
    )


def _unigram(front: list[str], ids: Mapping[str, int]) -> TinyTokenizer:
    backend = _unigram_backend(front, "<mask>")
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    start, end = ("<s>", ids["bos_token_id"]), ("</s>", ids["eos_token_id"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[start, end]
    )
    return TinyTokenizer(backend=backend, special_tokens=_roberta_specials(), config_ids=ids)


def _unigram_backend(front: list[str], mask: str) -> Tokenizer:
    vocab = [(token, 0.0) for token in front] + _unigram_pieces() + [(mask, 0.0)]
    backend = Tokenizer(models.Unigram(vocab, unk_id=3, byte_fallback=False))
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return backend


def _unigram_pieces() -> list[tuple[str, float]]:
    # Distinct scores: one best segmentation for every text, whole words before letters.
    listed = ["\u2581" + word for word in words()] + ["ing", "er", "es", "ed", "ings"]
    pieces = dict.fromkeys([*listed, "\u2581", *characters()])
    return [
        (piece, -4.0 - index / 256 if index < len(listed) else -10.0 - index / 256)
        for index, piece in enumerate(pieces)
    ]


def _bert_specials() -> dict[str, str]:
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
    return {**names, "sep_token": "[SEP]", "mask_token": "[MASK]"}


def _roberta_specials() -> dict[str, str]:
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    return {**names, "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
