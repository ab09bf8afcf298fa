"""Sets up logging: plain lines or JSON objects on stderr. Knows nothing of what is logged."""

import logging
import sys
import time

LOGGER_NAME = "infinity_v3"


class PlainFormatter(logging.Formatter):
    """`2025-01-31T12:00:00Z INFO message`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        text = f"{moment} {record.levelname} {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """One object a line; `extra={"fields": {...}}` adds keys."""

    def format(self, record: logging.LogRecord) -> str:
        import orjson

        entry: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        entry.update(getattr(record, "fields", {}))
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode("utf-8", "replace")


def set_up_logging(level: str, *, is_json: bool) -> logging.Logger:
    """Give the product's logger one handler on stderr; returns the logger."""
    logger = logging.getLogger(LOGGER_NAME)
    for handler in tuple(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if is_json else PlainFormatter())
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return logger
