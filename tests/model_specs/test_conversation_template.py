"""Which chat template makes texts of conversations, and what it is given."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.conversation_template import (
    ConversationTemplate,
    conversation_template,
    conversation_warnings,
)
from infinity_v3.model_specs.hub_config import read_hub_config
from tiny_checkpoints import make_tiny_checkpoint, remove_json_key, set_json_key, write_json
from tiny_templates import MISTRAL_CHAT_TEMPLATE, QWEN_CHAT_TEMPLATE, QWEN_PAIR_TEMPLATE

CONFIG = "tokenizer_config.json"
ALL = "{% for m in messages %}{{ m.content }}{% endfor %}"
PARTS = (
    "{% for m in messages %}{% for p in m.content %}{{ p.text if p.type == 'text' }}{% endfor %}"
    "{% endfor %}"
)
BOTH = "{% if messages[0].content is string %}" + ALL + "{% else %}" + PARTS + "{% endif %}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chat")
    make_tiny_checkpoint("qwen3", path, pooling=("last-token",))
    return path


@pytest.fixture
def checkpoint(made: Path, tmp_path: Path) -> Path:
    """The same files; those that a test changes are copies."""
    for file in made.iterdir():
        if file.name == CONFIG:
            (tmp_path / CONFIG).write_bytes(file.read_bytes())
        else:
            (tmp_path / file.name).symlink_to(file)
    return tmp_path


def find(path: Path) -> ConversationTemplate | None:
    return conversation_template(read_hub_config(path))


def write(path: Path, source: str) -> None:
    (path / "chat_template.jinja").write_text(source, encoding="utf-8")


def test_special_tokens_and_options_are_recorded(checkpoint: Path) -> None:
    found = find(checkpoint)
    assert found is not None
    assert found.source == QWEN_CHAT_TEMPLATE
    assert found.variables == {
        "add_generation_prompt": False,
        "documents": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "tools": None,
    }


@pytest.mark.parametrize(
    ("source", "forms"),
    [
        (ALL, (True, False)),
        (PARTS, (False, True)),
        (BOTH, (True, True)),
        (QWEN_CHAT_TEMPLATE, (True, False)),
        (MISTRAL_CHAT_TEMPLATE, (True, False)),
        (
            "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}" + ALL,
            (True, False),
        ),
        ("{{ strftime_now('%Y') }}" + ALL, (True, False)),
    ],
)
def test_the_form_of_contents_is_found_out(
    checkpoint: Path, source: str, forms: tuple[bool, bool]
) -> None:
    write(checkpoint, source)
    found = find(checkpoint)
    assert found is not None
    assert (found.takes_text, found.takes_parts) == forms


def test_the_default_is_taken_as_transformers_does(checkpoint: Path) -> None:
    named = [{"name": "tools", "template": "x" + ALL}, {"name": "default", "template": "y" + ALL}]
    set_json_key(checkpoint / CONFIG, "chat_template", named)
    assert getattr(find(checkpoint), "source", None) == "y" + ALL
    set_json_key(checkpoint / CONFIG, "chat_template", named[:1])
    assert find(checkpoint) is None
    folder = checkpoint / "additional_chat_templates"
    folder.mkdir()
    (folder / "chat_template.jinja").write_text("z" + ALL, encoding="utf-8")
    set_json_key(checkpoint / CONFIG, "chat_template", named)
    assert find(checkpoint) is None
    assert "additional_chat_templates/chat_template.jinja" in read_hub_config(checkpoint).files
    write(checkpoint, "f" + ALL)
    assert getattr(find(checkpoint), "source", None) == "f" + ALL


def test_without_a_template_there_is_none(checkpoint: Path) -> None:
    remove_json_key(checkpoint / CONFIG, "chat_template")
    assert find(checkpoint) is None
    assert conversation_warnings(read_hub_config(checkpoint), None) == ()


def test_a_template_of_pairs_is_none_of_conversations(checkpoint: Path) -> None:
    write(checkpoint, QWEN_PAIR_TEMPLATE)
    assert find(checkpoint) is None
    assert conversation_warnings(read_hub_config(checkpoint), None) == ()


def test_a_template_that_shows_nothing_is_worth_a_warning(checkpoint: Path) -> None:
    write(checkpoint, "hello")
    assert find(checkpoint) is None
    (warning,) = conversation_warnings(read_hub_config(checkpoint), None)
    assert "chat_template.jinja: " in warning
    assert "conversations will be refused" in warning


def test_what_the_checkpoint_states_goes_first(checkpoint: Path) -> None:
    options = {"add_generation_prompt": True, "enable_thinking": False, "padding": True}
    write_json(
        checkpoint / "sentence_bert_config.json",
        {"processing_kwargs": {"chat_template": options}},
    )
    found = find(checkpoint)
    assert found is not None
    assert found.variables["add_generation_prompt"] is True
    assert found.variables["enable_thinking"] is False
    assert "padding" not in found.variables


def test_stated_values_are_plain(checkpoint: Path) -> None:
    write_json(
        checkpoint / "sentence_bert_config.json",
        {"processing_kwargs": {"chat_template": {"tools": [1]}}},
    )
    with pytest.raises(UsageError, match="expected plain values"):
        find(checkpoint)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ raise_exception('never') }}", "never"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.clear() }}" + ALL, "SecurityError"),
        ("{{ 'a' * 20000000000 }}" + ALL, "too much time or memory"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(checkpoint: Path, source: str, reason: str) -> None:
    write(checkpoint, source)
    with pytest.raises(UsageError) as caught:
        find(checkpoint)
    message = str(caught.value)
    assert "chat_template.jinja: chat_template: expected" in message
    assert reason in message
    assert "\n" not in message
