"""What stands in front of the queries and documents of a late-interaction model: tokens and text.

A marker that the vocabulary knows as one token is put in as that token, because as text it could
fall apart; the text that follows it is a prompt.
"""

from collections.abc import Mapping

from infinity_v3.artifacts.manifest import Prompts

QUERY, DOCUMENT = "query", "document"


def split_marker(prefix: str, vocabulary: Mapping[str, int]) -> tuple[int | None, str]:
    """The token that a prefix begins with, if any, and the text that follows it.

    The token may be the whole prefix, its space included, or the first word of it.
    """
    for marker in (prefix, *prefix.split(None, 1)[:1]):
        if marker.strip() and marker in vocabulary and prefix.startswith(marker):
            return vocabulary[marker], prefix.removeprefix(marker)
    return None, prefix


def side_prompts(
    stored: Prompts, prefixes: Mapping[str, str], vocabulary: Mapping[str, int]
) -> Prompts:
    """The texts in front of queries, documents and whatever else has a prompt, without markers.

    Args:
        stored: the prompts of the checkpoint, which may repeat a prefix.
        prefixes: of "query" and "document".
        vocabulary: of the tokenizer.

    Returns:
        At least "query" and "document", the latter being the default where none is stored.
    """
    named = {QUERY: "", DOCUMENT: "", **stored.named}
    for side, prefix in prefixes.items():
        named[side] = split_marker(prefix, vocabulary)[1] + named[side].removeprefix(prefix)
    return Prompts(named=named, default=stored.default or DOCUMENT)
