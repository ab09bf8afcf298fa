"""Conversations against the reference tokenizer's `apply_chat_template`, and their limits."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from transformers import (  # noqa: TID251  the reference that ours must equal
    PreTrainedTokenizerBase,
)

from infinity_v3.artifacts.manifest import ChatTemplate
from infinity_v3.model_specs.conversation_template import conversation_template
from infinity_v3.model_specs.hub_config import read_hub_config
from infinity_v3.runtime import chat_template
from infinity_v3.runtime.chat_template import MAX_RENDER_S, ChatRenderer
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.late_interaction import Side
from infinity_v3.runtime.requests import Conversation, Message, TextInput, TruncationSide
from infinity_v3.runtime.tokenizer import TextTokenizer
from infinity_v3.runtime.truncation import Truncation
from reference_library import load_reference_tokenizer
from tiny_checkpoints import make_tiny_checkpoint
from tiny_models import MAX_INPUT_TOKENS, VOCAB_SIZE, word_tokenizer

WIDE = Truncation(max_tokens=512)
PARTS = (
    "{{- bos_token if bos_token is defined }}"
    "{%- for message in messages %}"
    "{%- set ns = namespace(text='') %}"
    "{%- if message.content is string %}{% set ns.text = message.content %}{% else %}"
    "{%- for part in message.content if part.type == 'text' %}"
    "{%- set ns.text = ns.text + part.text + '|' %}{% endfor %}{% endif %}"
    "{%- if loop.index == 9 %}{% break %}{% endif %}"
    "    {% generation %}<|im_start|>{{ message.role }}\n{{ ns.text }}<|im_end|>{% endgeneration %}"
    "{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "\n{{ {'ä': tools, 'b': dict(c=1)} | tojson(sort_keys=true) }} {{ strftime_now('%Y') }}\n"
)
"""Uses what templates may: namespaces, loop controls, filters, the clock, blocks of their own."""
CONVERSATIONS: tuple[Conversation, ...] = (
    Conversation(messages=(Message(role="user", content="what is deep learning?"),)),
    Conversation(
        messages=(
            Message(role="system", content="You are  helpful.\n"),
            Message(role="user", content="深度学习 é <|im_end|> [SEP] \x00"),
            Message(role="assistant", content=""),
            Message(role="user", content="word " * 40),
        )
    ),
)
IN_PARTS = Conversation(
    messages=(
        Message(role="system", content=("short",)),
        Message(role="user", content=("one ", "two")),
    )
)


@pytest.fixture(scope="module", params=["qwen3", "ministral3"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    make_tiny_checkpoint(request.param, path, pooling=("last-token",))
    return path


def ours(path: Path) -> TextTokenizer:
    """A tokenizer as serving loads it from what the compiler finds."""
    config = read_hub_config(path)
    found = conversation_template(config)
    assert found is not None
    facts = ChatTemplate(
        file="tokenizer/chat_template.jinja",
        variables=found.variables,
        takes_text=found.takes_text,
        takes_parts=found.takes_parts,
    )
    return TextTokenizer.from_file(
        path / "tokenizer.json",
        vocab_size=config.model.vocab_size,
        max_input_tokens=512,
        chat=ChatRenderer(found.source, facts),
    )


def as_transformers_takes_it(conversation: Conversation) -> list[dict[str, Any]]:
    return [
        {"role": message.role, "content": _content(message.content)}
        for message in conversation.messages
    ]


def _content(content: str | tuple[str, ...]) -> Any:  # noqa: ANN401  # a text or parts
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": part} for part in content]


def reference_ids(
    reference: PreTrainedTokenizerBase,
    conversation: Conversation,
    **options: Any,  # noqa: ANN401
) -> list[int]:
    messages = as_transformers_takes_it(conversation)
    return list(reference.apply_chat_template(messages, return_dict=False, **options))


def ids_of(
    tokenizer: TextTokenizer, conversation: Conversation, truncation: Truncation = WIDE
) -> list[int]:
    (found,) = tokenizer.encode([conversation], truncation, prompt="prompt ")
    return [int(token) for token in found.input_ids]


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_conversations_become_the_reference_ids(
    checkpoint: Path, conversation: Conversation
) -> None:
    reference, tokenizer = load_reference_tokenizer(checkpoint), ours(checkpoint)
    wanted = reference_ids(reference, conversation)
    assert ids_of(tokenizer, conversation) == wanted
    for side in TruncationSide:
        reference.truncation_side = side.value
        for limit in (1, 7, len(wanted) - 1):
            cut = reference_ids(reference, conversation, truncation=True, max_length=limit)
            found = ids_of(tokenizer, conversation, Truncation(max_tokens=limit, side=side))
            assert found == cut


@pytest.mark.parametrize("conversation", [*CONVERSATIONS, IN_PARTS])
def test_a_template_may_use_what_transformers_gives_it(
    checkpoint: Path, conversation: Conversation
) -> None:
    (checkpoint / "chat_template.jinja").write_text(PARTS, encoding="utf-8")
    try:
        reference, tokenizer = load_reference_tokenizer(checkpoint), ours(checkpoint)
    finally:
        (checkpoint / "chat_template.jinja").unlink()
    assert ids_of(tokenizer, conversation) == reference_ids(reference, conversation)


def test_parts_are_joined_where_the_template_takes_texts_only(checkpoint: Path) -> None:
    joined = Conversation(
        messages=tuple(
            Message(role=message.role, content="".join(message.content))
            for message in IN_PARTS.messages
        )
    )
    reference, tokenizer = load_reference_tokenizer(checkpoint), ours(checkpoint)
    assert ids_of(tokenizer, IN_PARTS) == reference_ids(reference, joined)


def words(source: str, *, in_parts: bool = False, **variables: Any) -> TextTokenizer:  # noqa: ANN401
    """A word tokenizer with a template."""
    facts = ChatTemplate(
        file="", variables=variables, takes_text=not in_parts, takes_parts=in_parts
    )
    return TextTokenizer(
        word_tokenizer(),
        vocab_size=VOCAB_SIZE,
        max_input_tokens=MAX_INPUT_TOKENS,
        chat=ChatRenderer(source, facts),
    )


def say(*contents: str) -> Conversation:
    return Conversation(messages=tuple(Message(role="user", content=text) for text in contents))


ALL = "{% for message in messages %}{{ message.content }} {% endfor %}"


def test_no_special_token_and_no_prompt_is_added() -> None:
    tokenizer = words("<s> " + ALL + "</s>")
    assert ids_of(tokenizer, say("w5", "w6")) == [1, 5, 6, 2]


def test_texts_are_wrapped_where_the_template_takes_parts_only() -> None:
    source = "{% for m in messages %}{% for p in m.content %}{{ p.text }} {% endfor %}{% endfor %}"
    assert ids_of(words(source, in_parts=True), say("w5", "w6")) == [5, 6]


def test_conversations_stand_among_other_items() -> None:
    tokenizer = words(ALL)
    items: list[TextInput] = ["w5", say("w6"), (9, 9), say("w7"), "w8"]
    found = [item.input_ids.tolist() for item in tokenizer.encode(items, WIDE)]
    assert found == [[1, 5, 2], [6], [9, 9], [7], [1, 8, 2]]


def test_a_side_adds_nothing_to_a_conversation() -> None:
    side = Side(prefix_id=900, max_tokens=20, filler_id=901)
    found = words(ALL).encode_side([say("w6 w7")], WIDE, side)
    assert found[0].input_ids.tolist() == [6, 7]


def test_long_conversations_are_cut_or_refused() -> None:
    tokenizer, long = words(ALL), say("w5 " * 9000, "w6 " * 9000)
    right = Truncation(max_tokens=3)
    left = Truncation(max_tokens=3, side=TruncationSide.LEFT)
    assert ids_of(tokenizer, long, right) == [5, 5, 5]
    assert ids_of(tokenizer, long, left) == [6, 6, 6]
    with pytest.raises(InferenceError, match=r"characters\. Given: 54002") as refused:
        ids_of(tokenizer, long, Truncation(max_tokens=3, is_allowed=False))
    assert (refused.value.code, refused.value.item) == ("input_too_long", 0)
    with pytest.raises(InferenceError, match=r"tokens\. Given: 4"):
        ids_of(tokenizer, say("w5 w6 w7 w8"), Truncation(max_tokens=3, is_allowed=False))


REFUSED: Mapping[str, tuple[str, str]] = {
    "its own words": ("{{ raise_exception('roles must\nalternate') }}", "roles must alternate"),
    "a mistake": ("{{ messages[0].content + 1 }}", "TypeError"),
    "an undefined value": ("{{ nothing.at.all }}", "undefined"),
    "private parts": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "a write": ("{{ messages.append(1) }}", "unsafe"),
    "an underscore": ("{% set ns = namespace(_x=1) %}", "underscore"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_of_the_template_is_a_sentence_about_the_item(case: str) -> None:
    source, reason = REFUSED[case]
    with pytest.raises(InferenceError) as refused:
        words(source).encode(["w5", say("w6")], WIDE)
    assert refused.value.kind is ErrorKind.TOKENIZER
    assert refused.value.item == 1
    assert reason in refused.value.message
    assert "\n" not in refused.value.message


def test_without_a_template_conversations_are_refused() -> None:
    tokenizer = TextTokenizer(word_tokenizer(), vocab_size=VOCAB_SIZE, max_input_tokens=9)
    with pytest.raises(InferenceError, match="no chat template") as refused:
        tokenizer.encode([say("w5")], WIDE)
    assert refused.value.code == "unsupported_task"


def test_no_text_at_all_is_empty() -> None:
    with pytest.raises(InferenceError) as refused:
        ids_of(words("{% set x = 1 %}"), say("w5"))
    assert refused.value.kind is ErrorKind.EMPTY


ENDLESS = "{% for i in range(90000) %}{% for j in range(90000) %}w5 {% endfor %}{% endfor %}"


def test_an_endless_template_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MAX_RENDER_S", 0.3)
    start_s = time.monotonic()
    left = Truncation(max_tokens=3, side=TruncationSide.LEFT)
    with pytest.raises(InferenceError, match="it takes longer than"):
        ids_of(words(ENDLESS), say("w5"), left)
    assert time.monotonic() - start_s < MAX_RENDER_S
    # Cut at the right, no more of it is made than stays.
    start_s = time.monotonic()
    assert ids_of(words(ENDLESS), say("w5"), Truncation(max_tokens=3)) == [5, 5, 5]
    assert time.monotonic() - start_s < MAX_RENDER_S / 2


def test_rendering_ends_when_nobody_waits() -> None:
    start_s = time.monotonic()
    left = Truncation(max_tokens=3, side=TruncationSide.LEFT)
    with pytest.raises(CancelledError):
        words(ENDLESS).encode(
            [say("w5")], left, is_wanted=lambda: time.monotonic() - start_s < 0.05
        )
    assert time.monotonic() - start_s < MAX_RENDER_S / 2


def test_many_threads_share_one_template() -> None:
    tokenizer = words(ALL)
    found: dict[int, list[int]] = {}

    def work(number: int) -> None:
        found[number] = ids_of(tokenizer, say(*[f"w{number}"] * 50))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5, 25)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == {number: [number] * 50 for number in range(5, 25)}
