"""Hints for misspelt words. Knows nothing of where a word stood."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return "; did you mean X?" for the known word nearest to `word`, or nothing.

    Args:
        word: what was given.
        known: what would have been right.
        prefix: shared by all of them, left out above and shown in the hint.
    """
    import difflib  # on the way to an error only, never at start-up

    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {prefix}{matches[0]}?" if matches else ""
