"""Hints for misspelt words. Knows nothing of where a word stood."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return "; did you mean X?" for the known word nearest to `word`, or nothing.

    The only one that begins like it is nearest.

    Args:
        word: what was given.
        known: what would have been right.
        prefix: shared by all of them, left out above and shown in the hint.
    """
    import difflib  # on the way to an error only, never at start-up

    words = list(known)
    longer = [known_word for known_word in words if word and known_word.startswith(word)]
    is_beginning = len(longer) == 1
    matches = longer if is_beginning else difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"; did you mean {prefix}{matches[0]}?" if matches else ""
