"""Named prefixes and which one a request gets. Knows nothing of tokens."""

from collections.abc import Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Prompts
from infinity_v3.runtime.errors import ErrorKind, InferenceError


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTable:
    """The prompts of one model.

    Attributes:
        default: text for requests that name no prompt; "" = nothing.
        default_name: the name of that text, if it has one.
    """

    named: Mapping[str, str]
    default: str = ""
    default_name: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.named)

    def name(self, prompt_name: str | None) -> str | None:
        """Give the name of the prompt in force for a request; None = it has no name."""
        return self.default_name if prompt_name is None else prompt_name

    def text(self, prompt_name: str | None) -> str:
        """Give the prefix for a request.

        Raises:
            InferenceError: VALIDATION, code unknown_prompt, listing the names there are.
        """
        if prompt_name is None:
            return self.default
        if prompt_name not in self.named:
            raise InferenceError(
                ErrorKind.VALIDATION,
                "unknown_prompt",
                f"`prompt_name` is not a prompt of this model. {_list(self.named)}",
                field="prompt_name",
            )
        return self.named[prompt_name]


def resolve_prompts(
    prompts: Prompts, *, default_prompt: str | None, default_prompt_name: str | None
) -> PromptTable:
    """Decide the default prompt: the literal, else the named one, else the checkpoint's own.

    Args:
        prompts: the artifact's table.
        default_prompt: literal prefix; "" switches the checkpoint's default off.
        default_prompt_name: key of the table.

    Raises:
        UsageError: both are given, or the name is not in the table.
    """
    if default_prompt is not None and default_prompt_name is not None:
        raise UsageError("--default-prompt and --default-prompt-name exclude each other; give one")
    if default_prompt is not None:
        return PromptTable(named=prompts.named, default=default_prompt)
    name = prompts.default if default_prompt_name is None else default_prompt_name
    if name is None:
        return PromptTable(named=prompts.named)
    if name not in prompts.named:
        raise UsageError(
            f"--default-prompt-name {name}: not a prompt of this artifact; {_hint(prompts.named)}"
        )
    return PromptTable(named=prompts.named, default=prompts.named[name], default_name=name)


def _hint(named: Mapping[str, str]) -> str:
    return f"expected one of {', '.join(named)}" if named else "it has no prompts: drop the option"


def _list(named: Mapping[str, str]) -> str:
    # Published clients learn the names from the words of this sentence.
    return f"Available prompts: [{', '.join(named)}]" if named else "It has no prompts"
