"""Chat templates of pairs: found where checkpoints keep them, run in a sandbox, never trusted."""

import json
import time
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import PairTemplate
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.model_specs.pair_template import (
    chat_pair_template,
    judge_pair_template,
    prompt_warnings,
)
from infinity_v3.model_specs.template_sandbox import Rendering, TemplateFailedError, render
from infinity_v3.model_specs.tokenizer_files import MAX_TEMPLATE_BYTES
from reference_library import load_reference_tokenizer
from tiny_checkpoints import make_tiny_checkpoint, remove_json_key, set_json_key, write_json
from tiny_families import SEQUENCE
from tiny_templates import PLAIN_PAIR_TEMPLATE, QWEN_CHAT_TEMPLATE, QWEN_PAIR_TEMPLATE

CONFIG = "tokenizer_config.json"
ROLES = "{{ 'query' if false }}{{ 'document' if false }}"
"""Names the roles, so that the template is run."""
BOTH = "{{ messages[0].content }}-{{ messages[1].content }}"
PARTS = (
    "{%- for message in messages -%}"
    "{%- if message.role in ('query', 'document') -%}"
    "<{{ message.role }}>{%- for part in message.content -%}"
    "{%- if part.type == 'text' -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- endif -%}"
    "{%- endfor -%}"
    '{{ \'"query" and "document"\' if false }}'
)
"""Contents are lists of parts, as models of several modalities have them."""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    make_tiny_checkpoint("qwen3", tmp_path, head=SEQUENCE, pooling=None, num_labels=1)
    remove_json_key(tmp_path / CONFIG, "chat_template")
    return tmp_path


def template_of(path: Path) -> PairTemplate | None:
    return chat_pair_template(read_hub_config(path))


def write_template(path: Path, source: str) -> None:
    (path / "chat_template.jinja").write_text(source, encoding="utf-8")


@pytest.mark.parametrize("source", [QWEN_PAIR_TEMPLATE, PLAIN_PAIR_TEMPLATE])
def test_a_pair_is_what_transformers_renders(checkpoint: Path, source: str) -> None:
    set_json_key(checkpoint / CONFIG, "chat_template", source)
    found = template_of(checkpoint)
    assert found is not None
    query, document = "who {{ wrote }} it?", "  he\ndid "
    conversation = [
        {"role": "query", "content": query},
        {"role": "document", "content": document},
    ]
    wanted = load_reference_tokenizer(checkpoint).apply_chat_template(
        conversation, tokenize=False, add_generation_prompt=True
    )
    assert found.before + query + found.between + document + found.after == wanted
    assert not found.adds_special_tokens


def test_templates_are_found_wherever_checkpoints_keep_them(checkpoint: Path) -> None:
    assert template_of(checkpoint) is None
    write_json(checkpoint / "chat_template.json", {"chat_template": f"json {BOTH}{ROLES}"})
    named = [
        {"name": "tool_use", "template": QWEN_CHAT_TEMPLATE},
        {"name": "rerank", "template": f"named {BOTH}{ROLES}"},
        {"name": "default", "template": QWEN_CHAT_TEMPLATE},
    ]
    befores = [getattr(template_of(checkpoint), "before", None)]
    set_json_key(checkpoint / CONFIG, "chat_template", named)
    befores.append(getattr(template_of(checkpoint), "before", None))
    set_json_key(checkpoint / CONFIG, "chat_template", f"text {BOTH}{ROLES}")
    befores.append(getattr(template_of(checkpoint), "before", None))
    write_template(checkpoint, f"jinja {BOTH}{ROLES}")
    befores.append(getattr(template_of(checkpoint), "before", None))
    assert befores == ["json ", "named ", "text ", "jinja "]


@pytest.mark.parametrize(
    "source",
    [
        QWEN_CHAT_TEMPLATE,
        "{{ raise_exception('roles must alternate') }}",
        "a query and a document {{ messages[0].role }}",
        "{% for message in messages %}{% if message.role == 'x' %}{{ message.content }}{% endif %}"
        "{% endfor %}{{ 'query' if false }}{{ 'document' if false }}",
    ],
)
def test_templates_of_other_conversations_are_none(checkpoint: Path, source: str) -> None:
    write_template(checkpoint, source)
    assert template_of(checkpoint) is None


def test_contents_may_be_lists_of_parts(checkpoint: Path) -> None:
    write_template(checkpoint, PARTS)
    found = template_of(checkpoint)
    assert found is not None
    assert (found.before, found.between, found.after) == ("<query>", "<document>", "")


def test_the_document_may_stand_first(checkpoint: Path) -> None:
    source = "{{ messages[1].content }}|{{ messages[0].content }}"
    write_template(checkpoint, source + ROLES)
    found = template_of(checkpoint)
    assert found is not None
    assert found.is_document_first
    assert found.between == "|"


def test_a_default_prompt_is_the_instruction(checkpoint: Path) -> None:
    write_template(checkpoint, QWEN_PAIR_TEMPLATE)
    plain = template_of(checkpoint)
    usage = {"model_type": "CrossEncoder", "prompts": {"web": "Find it"}}
    write_json(checkpoint / "config_sentence_transformers.json", usage)
    assert template_of(checkpoint) == plain
    set_json_key(checkpoint / "config_sentence_transformers.json", "default_prompt_name", "web")
    found = template_of(checkpoint)
    assert plain is not None
    assert found is not None
    assert "<Instruct>: Given a web search query" in plain.before
    assert "<Instruct>: Find it\n" in found.before
    config = read_hub_config(checkpoint)
    assert prompt_warnings(config, found) == ()
    assert 'the default prompt "web" is not put' in prompt_warnings(config, None)[0]


def test_variables_are_those_of_the_checkpoint(checkpoint: Path) -> None:
    shown = "{{ bos_token }}|{{ eos_token }}|{{ add_generation_prompt }}|{{ style }}|"
    set_json_key(checkpoint / CONFIG, "bos_token", {"content": "<s>", "special": True})
    write_template(checkpoint, shown + BOTH + ROLES)
    found = template_of(checkpoint)
    assert found is not None
    eos = json.loads((checkpoint / CONFIG).read_text())["eos_token"]
    assert found.before == f"<s>|{eos}|True||"
    variables = {"add_generation_prompt": False, "style": "short", "max_length": 9}
    write_json(
        checkpoint / "sentence_bert_config.json",
        {"processing_kwargs": {"chat_template": variables}},
    )
    found = template_of(checkpoint)
    assert found is not None
    assert found.before == f"<s>|{eos}|False|short|"


WRONG = {
    "syntax": ("{% if %}", "TemplateSyntaxError"),
    "its own refusal": ("{{ raise_exception('no pairs') }}", "no pairs"),
    "unknown function": ("{{ strftime_now('%d') }}", "'strftime_now' is undefined"),
    "unsafe": ("{{ ''.__class__.__mro__[1].__subclasses__()[0] }}", "SecurityError"),
    "twice": (f"{BOTH}{{{{ messages[0].content }}}}", "found 2 and 1 times"),
    "half": ("{{ messages[0].content }}", "found 1 and 0 times"),
    "by content": (
        f"{BOTH}{{% if 'x' in messages[0].content %}}!{{% endif %}}",
        "expected a template that leaves the texts as they are",
    ),
    "large": ("{{ 'a' * 2000000 }}" + BOTH, "it gives 2000"),
    "huge": ("{{ 'a' * 20000000000 }}" + BOTH, "it takes too much time or memory"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_template_that_cannot_prepare_pairs_is_one_sentence(checkpoint: Path, case: str) -> None:
    source, reason = WRONG[case]
    write_template(checkpoint, source + ROLES)
    with pytest.raises(UsageError) as caught:
        template_of(checkpoint)
    message = str(caught.value)
    assert reason in message
    assert "chat_template.jinja: " in message
    assert "\n" not in message


def test_an_endless_template_does_not_hang() -> None:
    body = "{% for i in range(99999) %}" * 4 + "{% endfor %}" * 4
    start = time.monotonic()
    with pytest.raises(TemplateFailedError, match="too much time"):
        render(Rendering(source=body, variables={}))
    assert time.monotonic() - start < 60


def test_a_template_beyond_reason_is_not_run(checkpoint: Path) -> None:
    write_template(checkpoint, "x" * (MAX_TEMPLATE_BYTES + 1))
    with pytest.raises(UsageError, match="chat template of at most"):
        read_hub_config(checkpoint)


def test_extensions_of_chat_templates_are_known() -> None:
    source = (
        "{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"
        "{% generation %}{{ {'a': 'ä<'} | tojson }}{% endgeneration %}"
    )
    assert render(Rendering(source=source, variables={})) == '1{"a": "ä<"}'


def test_the_published_prompt_holds_both_texts_between_its_marks() -> None:
    template = judge_pair_template()
    assert template.before.endswith("<Query>: ")
    assert template.between == "\n<Document>: "
    assert template.after.endswith("</think>\n\n")
