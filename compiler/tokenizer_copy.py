"""Puts the checkpoint's tokenizer into an artifact. Tokenises nothing."""

import json
import shutil
from pathlib import Path

from infinity_v3.model_specs.conversation_template import ConversationTemplate
from infinity_v3.model_specs.hub_config import HubConfig

FOLDER = "tokenizer"
TOKENIZER_FILE = f"{FOLDER}/tokenizer.json"
CHAT_TEMPLATE_FILE = f"{FOLDER}/chat_template.jinja"


def copy_tokenizer(
    config: HubConfig, stage: Path, conversation: ConversationTemplate | None = None
) -> None:
    """Copy tokenizer.json and the files beside it into `stage`/tokenizer.

    The template of conversations, wherever the checkpoint keeps it, gets a file of its own.

    Where sentence-transformers lowers the text before a tokenizer that would not, the tokenizer
    learns to do it, so that the runtime has one rule less.
    """
    folder = stage / FOLDER
    folder.mkdir()
    for file in (config.tokenizer.tokenizer, *config.tokenizer.companions):
        shutil.copyfile(file, folder / file.name)
    if conversation is not None:
        (stage / CHAT_TEMPLATE_FILE).write_text(conversation.source, encoding="utf-8", newline="")
    if config.must_lower_text:
        _lower_first(stage / TOKENIZER_FILE)


def _lower_first(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    steps = [{"type": "Lowercase"}]
    if content.get("normalizer"):
        steps.append(content["normalizer"])
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
