"""Builds the tokenizers of the tiny checkpoints: WordPiece, byte-level BPE and Unigram.

Knows nothing of models. Vocabularies are spelled out from a word list: the trainers of the
`tokenizers` library break ties by hash order, and the same seed would give other ids on every run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

WORDS = (
    "the a an is are was what which how deep learning machine model models test text texts query "
    "passage "
    "document search sentence sentences embedding embeddings vector cat cats dog dogs sat on mat "
    "runs running "
    "river bank money house houses green blue red small large quick brown fox jumps over lazy "
    "similar "
    "weather today tomorrow rain sun one two three four five six seven eight nine ten hello world "
    "der die das ist und Katze Hund Haus Häuser schön grün Straße Wetter heute morgen "
    "le la les est et chat chien maison maisons déjà élève été où garçon forêt temps demain "
    "el perro gato casa niño mañana corazón кот собака дом погода сегодня завтра привет мир "
    "深度 学习 模型 测试 天气 今天 猫 狗 こんにちは 世界 مرحبا عالم नमस्ते दुनिया"
)
_PUNCTUATION = ". , ? ! ' \" ( ) - : ; 0 1 2 3 4 5 6 7 8 9"


@dataclass(frozen=True, kw_only=True)
class TinyTokenizer:
    """A tokenizer and what else the checkpoint must say about it.

    Attributes:
        backend: with normaliser, pre-tokeniser, post-processor and decoder.
        special_tokens: as in special_tokens_map.json, e.g. {"cls_token": "[CLS]"}.
        config_ids: token ids for config.json, e.g. {"pad_token_id": 0}.
    """

    backend: Tokenizer
    special_tokens: Mapping[str, str]
    config_ids: Mapping[str, int]

    @property
    def vocab_size(self) -> int:
        """Rows that the word embedding needs."""
        return int(self.backend.get_vocab_size())


def build_tokenizer(family: str) -> TinyTokenizer:
    """Build the tokenizer that checkpoints of this family use."""
    builders = {
        "bert": _wordpiece,
        "distilbert": _wordpiece,
        "roberta": _byte_level_bpe,
        "xlm-roberta": _unigram_xlm_roberta,
        "camembert": _unigram_camembert,
    }
    return builders[family]()


def write_tokenizer(tokenizer: TinyTokenizer, path: Path, *, model_max_length: int) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json."""
    tokenizer.backend.save(str(path / "tokenizer.json"))
    specials = dict(tokenizer.special_tokens)
    # The generic class reads tokenizer.json as it is; family classes of transformers rebuild parts
    # of it.
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model_max_length}
    names = {"tokenizer_config.json": {**config, **specials}, "special_tokens_map.json": specials}
    for name, document in names.items():
        (path / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _words() -> list[str]:
    return list(dict.fromkeys(WORDS.split()))


def _characters() -> list[str]:
    return sorted(set(WORDS) - {" "}) + _PUNCTUATION.split()


def _wordpiece() -> TinyTokenizer:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    normalizer = normalizers.BertNormalizer(lowercase=True)
    words = [normalizer.normalize_str(word).strip() for word in _words()]
    characters = sorted({character for word in words for character in word} | set(_PUNCTUATION))
    endings = ["##ing", "##er", "##es", "##ed", "##ings"]
    pieces = [*characters, *("##" + character for character in characters), *endings, *words]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys([*specials, *pieces]))}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.add_special_tokens(specials)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
    names |= {"sep_token": "[SEP]", "mask_token": "[MASK]"}
    return TinyTokenizer(backend=backend, special_tokens=names, config_ids={"pad_token_id": 0})


def _byte_level_bpe() -> TinyTokenizer:
    front = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = _byte_level_merges()
    pieces = dict.fromkeys([*front, *alphabet, *(left + right for left, right in merges), "<mask>"])
    vocab = {piece: index for index, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
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


def _byte_level_merges() -> list[tuple[str, str]]:
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
    merges: dict[tuple[str, str], None] = {}
    for word in _words():
        for text in (word, " " + word):
            piece, _ = splitter.pre_tokenize_str(text)[0]
            merges |= dict.fromkeys((piece[:end], piece[end]) for end in range(1, len(piece)))
    return list(merges)


def _unigram_xlm_roberta() -> TinyTokenizer:
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    return _unigram(["<s>", "<pad>", "</s>", "<unk>"], ids)


def _unigram_camembert() -> TinyTokenizer:
    # CamemBERT's own vocabulary keeps unused rows in front, so its start and end tokens are 5 and
    # 6.
    front = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    return _unigram(front, {"bos_token_id": 5, "pad_token_id": 1, "eos_token_id": 6})


def _unigram(front: list[str], ids: Mapping[str, int]) -> TinyTokenizer:
    vocab = [(token, 0.0) for token in front] + _unigram_pieces() + [("<mask>", 0.0)]
    backend = Tokenizer(models.Unigram(vocab, unk_id=3, byte_fallback=False))
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    start, end = ("<s>", ids["bos_token_id"]), ("</s>", ids["eos_token_id"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[start, end]
    )
    return TinyTokenizer(backend=backend, special_tokens=_roberta_specials(), config_ids=ids)


def _unigram_pieces() -> list[tuple[str, float]]:
    # Distinct scores: one best segmentation for every text, whole words before letters.
    words = ["\u2581" + word for word in _words()] + ["ing", "er", "es", "ed", "ings"]
    pieces = dict.fromkeys([*words, "\u2581", *_characters()])
    word_count = len(words)
    return [
        (piece, -4.0 - index / 256 if index < word_count else -10.0 - index / 256)
        for index, piece in enumerate(pieces)
    ]


def _roberta_specials() -> dict[str, str]:
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    return {**names, "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
