"""Writes and edits the JSON files of a checkpoint. Knows nothing of what they say."""

import json
from pathlib import Path


def set_json_key(file: Path, key: str, value: object) -> Path:
    """Set one top-level key of a JSON file."""
    document = json.loads(file.read_text(encoding="utf-8"))
    document[key] = value
    write_json(file, document)
    return file


def remove_json_key(file: Path, key: str) -> Path:
    """Delete one top-level key of a JSON file."""
    document = json.loads(file.read_text(encoding="utf-8"))
    del document[key]
    write_json(file, document)
    return file


def duplicate_json_key(file: Path, key: str) -> Path:
    """Write `key` of a JSON object a second time, with the same value."""
    text = file.read_text(encoding="utf-8")
    value = json.dumps(json.loads(text)[key])
    file.write_text(text.replace("{", f"{{{json.dumps(key)}: {value},", 1), encoding="utf-8")
    return file


def write_json(file: Path, document: object) -> None:
    """Write a JSON file the way transformers does."""
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
