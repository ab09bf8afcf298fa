"""The two kinds of byte-pair vocabularies: byte-level, and sentencepiece's with byte fallback.

Owns merges, pre-tokenisers and decoders. Knows nothing of special tokens' meaning.
"""

from collections.abc import Iterable, Mapping, Sequence

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from tiny_words import PUNCTUATION, characters, words

SPACE = "\u2581"
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level_merges(listed: Iterable[str]) -> list[tuple[str, str]]:
    """Merges that spell each word from its bytes, alone and after a space."""
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
    merges: dict[tuple[str, str], None] = {}
    for word in listed:
        for text in (word, " " + word):
            piece, _ = splitter.pre_tokenize_str(text)[0]
            merges |= dict.fromkeys((piece[:end], piece[end]) for end in range(1, len(piece)))
    return list(merges)


def byte_level_backend(
    front: Sequence[str], listed: Iterable[str], back: Sequence[str], *, split: bool
) -> Tokenizer:
    """A byte-level BPE: `front`, bytes and words, `back`; `split` as the decoders' regex does."""
    merges = byte_level_merges(listed)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = dict.fromkeys([*front, *alphabet, *(left + right for left, right in merges), *back])
    vocab = {piece: index for index, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab, merges))
    backend.pre_tokenizer = _split_pre_tokenizer() if split else _plain_pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    return backend


def _plain_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _split_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def sentencepiece_backend(front: Sequence[str], text: str) -> Tokenizer:
    """A character BPE with byte fallback over the words of `text`: `front`, bytes, pieces."""
    merges = _character_merges(words(text))
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = [SPACE, *characters(text), *PUNCTUATION.split()]
    pieces = dict.fromkeys([*front, *byte_pieces, *letters])
    pieces |= dict.fromkeys(left + right for left, right in merges)
    vocab = {piece: index for index, piece in enumerate(pieces)}
    return Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )


def _character_merges(listed: Iterable[str]) -> list[tuple[str, str]]:
    merges: dict[tuple[str, str], None] = {}
    for word in listed:
        for piece in (SPACE + word, word):
            merges |= dict.fromkeys((piece[:end], piece[end]) for end in range(1, len(piece)))
    return list(merges)


def sentencepiece_decoder(*, strip_first_space: bool) -> decoders.Decoder:
    """Byte pieces to bytes, the visible space to a space."""
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if strip_first_space:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)


def visible_spaces(*, prefix: bool) -> normalizers.Normalizer:
    """Spaces become the visible space; `prefix` puts one in front."""
    replace = normalizers.Replace(" ", SPACE)
    return normalizers.Sequence([normalizers.Prepend(SPACE), replace]) if prefix else replace


def template(
    single: str, pair: str, special_tokens: Mapping[str, int]
) -> processors.TemplateProcessing:
    """A post-processor that adds special tokens around one text or two."""
    return processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=list(special_tokens.items())
    )


def special(token: str) -> AddedToken:
    """A special token that no normaliser touches."""
    return AddedToken(token, special=True, normalized=False)


def token_id(backend: Tokenizer, token: str) -> int:
    """The id of a token that is in the vocabulary.

    Raises:
        KeyError: it is not.
    """
    found = backend.token_to_id(token)
    if found is None:
        raise KeyError(token)
    return int(found)
