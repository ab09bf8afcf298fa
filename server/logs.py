"""Sets up logging: plain lines or JSON objects on stderr. Knows nothing of what is logged."""

import json
import logging
import sys
import threading
import time
from types import TracebackType

LOGGER_NAME = "infinity_v3"
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class PlainFormatter(logging.Formatter):
    """`2025-01-31T12:00:00Z INFO message`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        text = f"{moment} {record.levelname} {_message(record)}"
        where = _traceback(record)
        return text if where is None else f"{text}\n{where}"


class JsonFormatter(logging.Formatter):
    """One object a line; `extra={"fields": {...}}` adds keys."""

    def format(self, record: logging.LogRecord) -> str:
        import orjson

        entry: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": _message(record),
        }
        entry.update(getattr(record, "fields", {}))
        where = _traceback(record)
        if where is not None:
            entry["traceback"] = where
        try:
            return orjson.dumps(entry, default=str).decode()
        except TypeError:  # half a character, as file names may have
            return json.dumps(entry, default=str)


def _message(record: logging.LogRecord) -> str:
    """What libraries add below their first line may show the arguments of a call."""
    text = record.getMessage()
    if record.name == LOGGER_NAME:
        return text
    return f"{record.name}: {text.partition(chr(10))[0]}"


def _traceback(record: logging.LogRecord) -> str | None:
    """Where a bug showed and its types. Their messages are left out: they may quote a request."""
    if record.exc_info is None or record.exc_info[1] is None:
        return None
    import traceback

    parts: list[str] = []
    error: BaseException | None = record.exc_info[1]
    while error is not None:
        kind = type(error)
        frames = "".join(traceback.format_tb(error.__traceback__))
        parts.append(f"{frames}{kind.__module__}.{kind.__qualname__}")
        error = error.__cause__ or error.__context__
    return "\nthe result of:\n".join(parts)


def set_up_logging(level: str, *, is_json: bool) -> logging.Logger:
    """Give every logger of the process one handler on stderr; returns the product's logger.

    Libraries are heard from level warning on; so are warnings and what ends a thread.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if is_json else PlainFormatter())
    logger = logging.getLogger(LOGGER_NAME)
    for owner in (logging.getLogger(), logger):
        for old in tuple(owner.handlers):
            owner.removeHandler(old)
        owner.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    threading.excepthook = _log_thread_end
    logging.captureWarnings(True)
    return logger


def _log_thread_end(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread is not None else "?"
    found: _ExcInfo = (args.exc_type, args.exc_value, args.exc_traceback)
    logging.getLogger(LOGGER_NAME).critical("thread %s has died", name, exc_info=found)
