"""The tokens of a tokenizer.json and their ids. Tokenises nothing."""

from collections.abc import Mapping
from pathlib import Path

from infinity_v3.model_specs.json_file import JsonObject, read_object

_MAX_ID = 10**9


def read_vocabulary(tokenizer: Path) -> Mapping[str, int]:
    """Every token by its spelling inside the tokenizer: the model's own pieces and added tokens.

    Raises:
        UsageError: the file is none, or an added token is not one.
        RunFailedError: the file can't be read.
    """
    content = read_object(tokenizer)
    known = _pieces(content)
    for token in content.children("added_tokens"):
        word, number = token.text("content"), token.integer("id", minimum=0, maximum=_MAX_ID)
        if word is not None and number is not None:
            known[word] = number
    return known


def _pieces(content: JsonObject) -> dict[str, int]:
    model = content.child("model")
    pieces = model.values.get("vocab") if model else None
    if isinstance(pieces, dict):
        return {word: number for word, number in pieces.items() if isinstance(number, int)}
    # A unigram model lists its pieces with their scores; the place is the id.
    listed = pieces if isinstance(pieces, list) else []
    return {
        entry[0]: number
        for number, entry in enumerate(listed)
        if isinstance(entry, list) and entry and isinstance(entry[0], str)
    }
