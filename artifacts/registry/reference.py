"""How an artifact of a registry is named on a command line. Looks nothing up."""

from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.names import NAME_RULE, is_name, is_sha256

DEFAULT_CHANNEL = "prod"
FORMS = "name, name:channel, name==version or name@sha256:<64 hex digits>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """At most one of `channel`, `version` and `id` is set.

    None of them = the channel `prod` where it exists, else the only version.
    """

    name: str
    channel: str | None = None
    version: str | None = None
    id: str | None = None

    @property
    def text(self) -> str:
        """The reference as it is written."""
        if self.channel is not None:
            return f"{self.name}:{self.channel}"
        if self.version is not None:
            return f"{self.name}=={self.version}"
        return self.name if self.id is None else f"{self.name}@{self.id}"


def is_marked(text: str) -> bool:
    """Tell whether `text` can be nothing but a reference, as no path or hub id looks like it."""
    return any(mark in text for mark in (":", "==", "@"))


def parse_reference(text: str) -> Reference:
    """Read one of the four forms.

    Raises:
        UsageError: it is none of them.
    """
    if "@" in text:
        name, _, digest = text.partition("@")
        prefix, _, digits = digest.partition(":")
        if prefix != "sha256" or not is_sha256(digits):
            raise UsageError(f"{text}: expected {FORMS}, found {digest!a} behind the @")
        return Reference(name=_name(name, text), id=digest)
    if "==" in text:
        name, _, version = text.partition("==")
        return Reference(name=_name(name, text), version=_name(version, text))
    if ":" in text:
        name, _, channel = text.partition(":")
        return Reference(name=_name(name, text), channel=_name(channel, text))
    return Reference(name=_name(text, text))


def _name(part: str, text: str) -> str:
    if not is_name(part):
        raise UsageError(f"{text}: expected {FORMS}; a name is {NAME_RULE}, found {part!a}")
    return part
