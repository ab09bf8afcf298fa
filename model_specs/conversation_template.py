"""The chat template that makes one text of a conversation, tried out before anything is built.

Unlike the template of pairs it is run for each request. What is found here is what it is given
beside the messages, and how it takes their contents. Knows nothing of tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import TemplateValue
from infinity_v3.model_specs.hub_config import HubConfig
from infinity_v3.model_specs.pair_template import names_pair_roles, stated_variables
from infinity_v3.model_specs.template_sandbox import Rendering, TemplateFailedError, render
from infinity_v3.model_specs.tokenizer_files import ChatTemplate

_MARK = "\ue000a text\ue001"
"""Private characters around it, so that it is found wherever the template puts it."""
_OTHER = "another one"
"""What others say than the user, whose words must be shown."""
_CONVERSATIONS = (("user",), ("system", "user"), ("user", "assistant", "user"))
"""Roles of the conversations that are tried: some templates refuse one or the other."""
_Forms = tuple[bool, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationTemplate:
    """A template that works.

    Attributes:
        variables: what it is given beside the messages.
        takes_text: it shows contents that are texts.
        takes_parts: it shows contents that are lists of parts.
    """

    source: str
    variables: Mapping[str, TemplateValue]
    takes_text: bool
    takes_parts: bool


def conversation_template(config: HubConfig) -> ConversationTemplate | None:
    """The checkpoint's chat template, None where it has none that shows what a user says.

    Raises:
        UsageError: it cannot be run, or is given what a manifest does not hold.
    """
    template = config.tokenizer.default_template
    if template is None:
        return None
    variables = _variables(config, template)
    forms = _find_forms(template, variables)
    if forms is None:
        return None
    takes_text, takes_parts = forms
    return ConversationTemplate(
        source=template.source,
        variables=variables,
        takes_text=takes_text,
        takes_parts=takes_parts,
    )


def conversation_warnings(config: HubConfig, found: ConversationTemplate | None) -> tuple[str, ...]:
    """Say so where a chat template is of no use for conversations, nor one of pairs."""
    template = config.tokenizer.default_template
    if found is not None or template is None or names_pair_roles(template):
        return ()
    return (
        f"{template.file}: the chat template does not show what a user says; requests with "
        "conversations will be refused",
    )


def _variables(config: HubConfig, template: ChatTemplate) -> Mapping[str, TemplateValue]:
    found: dict[str, TemplateValue] = dict(config.tokenizer.special_tokens)
    found |= {"add_generation_prompt": False, "tools": None, "documents": None}
    for key, value in stated_variables(config).items():
        if value is not None and not isinstance(value, str | bool | int | float):
            raise UsageError(
                f"{template.file}: expected plain values for the chat template, found a list or an "
                f"object for {key!r}, which the checkpoint states in its processing_kwargs"
            )
        found[key] = value
    return found


def _find_forms(template: ChatTemplate, variables: Mapping[str, TemplateValue]) -> _Forms | None:
    """Whether it shows texts and parts; None = neither, in no conversation."""
    failures: list[TemplateFailedError] = []
    num_tries = 0
    for roles in _CONVERSATIONS:
        shown = []
        for in_parts in (False, True):
            num_tries += 1
            try:
                shown.append(_is_shown(template, variables, roles, in_parts=in_parts))
            except TemplateFailedError as error:
                failures.append(error)
                shown.append(False)
        if any(shown):
            return shown[0], shown[1]
    if len(failures) == num_tries and not names_pair_roles(template):
        raise UsageError(
            f"{template.file}: chat_template: expected one that makes a text of a conversation, "
            f"found one that cannot be run: {failures[0]}; mend it, or take it away to do without "
            "conversations"
        ) from failures[0]
    return None


def _is_shown(
    template: ChatTemplate,
    variables: Mapping[str, TemplateValue],
    roles: Sequence[str],
    *,
    in_parts: bool,
) -> bool:
    texts = [_MARK if role == "user" else _OTHER for role in roles]
    messages = [
        {"role": role, "content": [{"type": "text", "text": text}] if in_parts else text}
        for role, text in zip(roles, texts, strict=True)
    ]
    given = {**variables, "messages": messages}
    text = render(Rendering(source=template.source, variables=given, has_clock=True))
    # A template that knows no parts may write the list down as Python does.
    return _MARK in text and not (in_parts and ("'text'" in text or '"text"' in text))
