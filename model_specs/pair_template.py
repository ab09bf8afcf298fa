"""How a query and a document become one text for rerankers that read a conversation.

A chat template is one of pairs when it names the roles "query" and "document" as quoted words and
shows the contents of two such messages. It is run here, at compile time, on marks in place of the
texts: what stands around the marks is all that serving needs. An instruction is the template's own
default, unless the checkpoint has a default prompt, which is put in as a system message. Knows
nothing of tokens.
"""

import re
from collections.abc import Mapping, Sequence

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import PairTemplate
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.json_file import shown
from infinity_v3.model_specs.template_sandbox import Rendering, TemplateFailedError, render
from infinity_v3.model_specs.tokenizer_files import ChatTemplate

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
"""The instruction that Qwen3-Reranker publishes for tasks without one of their own."""
_MARKS = (("\ue000query\ue000", "\ue001document\ue001"), ("\ue000x y\ue000", "\ue001z\ue001"))
"""Two sets of private characters, so that a template that changes its texts is noticed."""
_ROLES = ("query", "document")
# What sentence-transformers does not pass on to the template.
_NO_VARIABLES = ("max_length", "padding", "restore_suffix", "return_tensors", "truncation")


def judge_pair_template() -> PairTemplate:
    """The prompt of Qwen3-Reranker, as its model card gives it."""
    return PairTemplate(
        before="<|im_start|>system\nJudge whether the Document meets the requirements based on the "
        'Query and the Instruct provided. Note that the answer can only be "yes" or "no".'
        f"<|im_end|>\n<|im_start|>user\n<Instruct>: {INSTRUCTION}\n<Query>: ",
        between="\n<Document>: ",
        after="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        adds_special_tokens=False,
    )


def chat_pair_template(config: HubConfig) -> PairTemplate | None:
    """What the checkpoint's chat template makes of a query and a document, None without one.

    Raises:
        UsageError: the template cannot be run, shows a text other than once, or treats it by its
            content.
    """
    for template in config.tokenizer.templates:
        if names_pair_roles(template):
            found = _pair_template(config, template)
            if found is not None:
                return found
    return None


def names_pair_roles(template: ChatTemplate) -> bool:
    """Whether it speaks of the roles "query" and "document"."""
    return all(re.search(rf"(['\"]){role}\1", template.source) for role in _ROLES)


def stated_variables(config: HubConfig) -> Mapping[str, object]:
    """What the checkpoint says that its template is given beside the messages."""
    stated = config.sentence.template_variables if config.sentence else {}
    return {key: value for key, value in stated.items() if key not in _NO_VARIABLES}


def prompt_warnings(config: HubConfig, template: PairTemplate | None) -> tuple[str, ...]:
    """Say so where the checkpoint has a default prompt and pairs have no place for it."""
    if template is not None or not _instruction(config):
        return ()
    return (
        f"{config.path}: the default prompt {shown(config.prompts.default)} is not put in front of "
        "pairs; write it in front of each query",
    )


def _instruction(config: HubConfig) -> str:
    prompts = config.prompts
    return "" if prompts.default is None else prompts.named[prompts.default]


def _pair_template(config: HubConfig, template: ChatTemplate) -> PairTemplate | None:
    texts = _render_marks(config, template)
    if not any(_is_shown(text, marks) for text, marks in zip(texts, _MARKS, strict=True)):
        return None
    first, second = (
        _split(template, text, marks) for text, marks in zip(texts, _MARKS, strict=True)
    )
    if first != second:
        raise UsageError(
            f"{template.file}: expected a template that leaves the texts as they are, found "
            "one that depends on them; pairs cannot be prepared by it"
        )
    return first


def _render_marks(config: HubConfig, template: ChatTemplate) -> list[str]:
    """Contents are texts, or lists of parts where only those are shown."""
    try:
        texts = [_render(config, template, marks, in_parts=False) for marks in _MARKS]
        if _is_shown(texts[0], _MARKS[0]):
            return texts
    except UsageError as error:
        try:
            return [_render(config, template, marks, in_parts=True) for marks in _MARKS]
        except UsageError:
            raise error from None
    return [_render(config, template, marks, in_parts=True) for marks in _MARKS]


def _is_shown(text: str, marks: Sequence[str]) -> bool:
    return any(mark in text for mark in marks)


def _render(
    config: HubConfig, template: ChatTemplate, marks: Sequence[str], *, in_parts: bool
) -> str:
    turns = list(zip(_ROLES, marks, strict=True))
    if instruction := _instruction(config):
        turns.insert(0, ("system", instruction))
    messages = [
        {"role": role, "content": [{"type": "text", "text": text}] if in_parts else text}
        for role, text in turns
    ]
    variables = {**config.tokenizer.special_tokens, **_variables(config), "messages": messages}
    try:
        return render(Rendering(source=template.source, variables=variables))
    except TemplateFailedError as error:
        raise UsageError(
            f"{template.file}: chat_template: expected one that makes a text of a query and a "
            f"document, found one that cannot be run: {error}"
        ) from error


def _variables(config: HubConfig) -> Mapping[str, object]:
    """Checkpoints of sentence-transformers state them; others are asked to answer at once."""
    usual = {"add_generation_prompt": config.modules is None, "tools": None, "documents": None}
    return {**usual, **stated_variables(config)}


def _split(template: ChatTemplate, text: str, marks: Sequence[str]) -> PairTemplate:
    query, document = marks
    if text.count(query) != 1 or text.count(document) != 1:
        raise UsageError(
            f"{template.file}: expected a template that shows the query and the document "
            f"once each, found {text.count(query)} and {text.count(document)} times"
        )
    is_document_first = text.index(document) < text.index(query)
    first, second = (document, query) if is_document_first else (query, document)
    before, _, rest = text.partition(first)
    between, _, after = rest.partition(second)
    return PairTemplate(
        before=before,
        between=between,
        after=after,
        adds_special_tokens=False,
        is_document_first=is_document_first,
    )
