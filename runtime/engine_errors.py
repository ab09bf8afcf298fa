"""What an engine raises. Knows nothing of requests."""


class EngineError(Exception):
    """An engine call failed; the message is the library's own text, without request contents."""


class EngineLoadError(Exception):
    """A target could not be loaded on this host."""
