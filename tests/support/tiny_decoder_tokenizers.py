"""Tokenizers of decoders and of the encoders that grew from them.

Knows nothing of models. `TinyTokenizer` and the dispatch by name live in `tiny_tokenizers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from tiny_bpe import (
    byte_level_backend,
    sentencepiece_backend,
    sentencepiece_decoder,
    special,
    template,
    token_id,
    visible_spaces,
)
from tiny_templates import MISTRAL_CHAT_TEMPLATE, QWEN_CHAT_TEMPLATE
from tiny_words import DIALOGUE_WORDS, WORDS, words


@dataclass(frozen=True, kw_only=True)
class BpeRecipe:
    """What is known of one family's tokenizer.

    Attributes:
        front: special tokens before the pieces.
        back: special tokens after the pieces.
        names: as in special_tokens_map.json.
        single: template of one text; empty adds nothing.
        pair: template of two texts.
        id_names: names in config.json -> the token whose id they hold.
        sentencepiece: characters with byte fallback instead of bytes.
        prefix_space: sentencepiece only: put a space in front of a text.
        chat_template: for tokenizer_config.json.
        padding_side: for tokenizer_config.json.
    """

    front: Sequence[str] = ()
    back: Sequence[str] = ()
    names: Mapping[str, str]
    single: str = ""
    pair: str = ""
    id_names: Mapping[str, str]
    sentencepiece: bool = False
    prefix_space: bool = False
    chat_template: str | None = None
    padding_side: str = "right"
    normalizer: normalizers.Normalizer | None = field(default=None)


def build_backend(recipe: BpeRecipe) -> Tokenizer:
    """The tokenizer that a recipe describes."""
    backend = _sentencepiece(recipe) if recipe.sentencepiece else _byte_level(recipe)
    backend.add_special_tokens([special(token) for token in (*recipe.front, *recipe.back)])
    if recipe.single:
        used = [token for token in (*recipe.front, *recipe.back) if token in recipe.pair]
        ids = {token: token_id(backend, token) for token in used}
        backend.post_processor = template(recipe.single, recipe.pair, ids)
    return backend


def _byte_level(recipe: BpeRecipe) -> Tokenizer:
    listed = words(f"{DIALOGUE_WORDS} {WORDS}")
    backend = byte_level_backend(recipe.front, listed, recipe.back, split=True)
    if recipe.normalizer is not None:
        backend.normalizer = recipe.normalizer
    return backend


def _sentencepiece(recipe: BpeRecipe) -> Tokenizer:
    backend = sentencepiece_backend(recipe.front, f"{DIALOGUE_WORDS} {WORDS}")
    backend.normalizer = visible_spaces(prefix=recipe.prefix_space)
    if not recipe.prefix_space:
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = sentencepiece_decoder(strip_first_space=recipe.prefix_space)
    return backend


def qwen(*, append_end: bool) -> BpeRecipe:
    """Qwen: nothing around a text; its embedding models append the end of text."""
    end = "<|endoftext|>"
    return BpeRecipe(
        back=(end, "<|im_start|>", "<|im_end|>", "<think>", "</think>"),
        names={"eos_token": "<|im_end|>", "pad_token": end},
        single=f"$A {end}" if append_end else "",
        pair=f"$A $B {end}" if append_end else "",
        id_names={"eos_token_id": "<|im_end|>", "pad_token_id": end, "bos_token_id": end},
        chat_template=QWEN_CHAT_TEMPLATE,
        padding_side="left",
        normalizer=normalizers.NFC(),
    )


def llama3() -> BpeRecipe:
    """Llama 3: a start token in front of each text."""
    start, end, pad = "<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>"
    return BpeRecipe(
        back=(start, end, pad, "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        names={"bos_token": start, "eos_token": end, "pad_token": pad},
        single=f"{start} $A",
        pair=f"{start} $A {start}:1 $B:1",
        id_names={"bos_token_id": start, "eos_token_id": end, "pad_token_id": pad},
        padding_side="left",
    )


def eurobert() -> BpeRecipe:
    """EuroBERT: the vocabulary of Llama 3 with start, end and mask."""
    start, end, mask = "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"
    names = {"bos_token": start, "eos_token": end, "cls_token": start, "sep_token": end}
    return BpeRecipe(
        back=(start, end, mask),
        names={**names, "pad_token": end, "mask_token": mask},
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B {end}",
        id_names={"bos_token_id": start, "eos_token_id": end, "pad_token_id": end}
        | {"mask_token_id": mask},
    )


def modernbert() -> BpeRecipe:
    """ModernBERT: byte-level pieces, BERT's special tokens behind them."""
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    ids = {"bos_token_id": "[CLS]", "eos_token_id": "[SEP]", "pad_token_id": "[PAD]"}
    return BpeRecipe(
        front=("<|endoftext|>", "<|padding|>"),
        back=("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[unused0]", "[unused1]"),
        names={**names, "pad_token": "[PAD]", "mask_token": "[MASK]"},
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        id_names={**ids, "cls_token_id": "[CLS]", "sep_token_id": "[SEP]"},
        normalizer=normalizers.NFC(),
    )


def ultrabert() -> BpeRecipe:
    """UltraBERT: as ModernBERT, whose special ids config.json names fewer of."""
    recipe = modernbert()
    ids = {name: recipe.id_names[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return BpeRecipe(
        front=recipe.front,
        back=recipe.back,
        names=recipe.names,
        single=recipe.single,
        pair=recipe.pair,
        id_names=ids,
    )


def tekken() -> BpeRecipe:
    """Ministral: byte-level pieces behind Mistral's special tokens."""
    front = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")
    return BpeRecipe(
        front=(*front, "<pad>"),
        names={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
        single="<s> $A",
        pair="<s> $A <s>:1 $B:1",
        id_names={"bos_token_id": "<s>", "eos_token_id": "</s>", "pad_token_id": "<pad>"},
        chat_template=MISTRAL_CHAT_TEMPLATE,
        padding_side="left",
    )


def mistral(*, append_end: bool) -> BpeRecipe:
    """Mistral 7B: sentencepiece; its embedding models append the end token."""
    end = " </s>" if append_end else ""
    return BpeRecipe(
        front=("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
        names={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"},
        single=f"<s> $A{end}",
        pair=f"<s> $A{end} <s>:1 $B:1{end and ' </s>:1'}",
        id_names={"bos_token_id": "<s>", "eos_token_id": "</s>", "pad_token_id": "</s>"},
        sentencepiece=True,
        prefix_space=True,
        padding_side="left",
    )


def gemma(*, append_end: bool) -> BpeRecipe:
    """Gemma: sentencepiece without a prefix space; EmbeddingGemma appends the end token."""
    end = " <eos>" if append_end else ""
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return BpeRecipe(
        front=("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>"),
        names={**names, "mask_token": "<mask>"},
        single=f"<bos> $A{end}",
        pair=f"<bos> $A{end} <bos>:1 $B:1{end and ' <eos>:1'}",
        id_names={"bos_token_id": "<bos>", "eos_token_id": "<eos>", "pad_token_id": "<pad>"},
        sentencepiece=True,
    )
