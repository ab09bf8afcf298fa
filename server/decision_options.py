"""What the configuration says of decision models. Knows nothing of requests."""

from collections.abc import Sequence

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.server.served import ServedModel


def read_aliases(values: Sequence[str], models: Sequence[ServedModel]) -> dict[str, str]:
    """Served name by alias.

    Args:
        values: each "ALIAS=NAME".
        models: those that are served.

    Raises:
        UsageError: no decision model has that name, or an alias is given twice or is a name itself.
    """
    deciding = [model.name for model in models if model.info.decision is not None]
    names = {model.name for model in models}
    aliases: dict[str, str] = {}
    for value in values:
        alias, _, name = value.partition("=")
        if name not in deciding:
            raise UsageError(
                f"--decision-alias {value}: expected the name of a decision model "
                f"({', '.join(deciding) or 'none is served'}), found {name!r}"
                f"{nearest(name, deciding)}"
            )
        if alias in aliases or alias in names:
            raise UsageError(
                f"--decision-alias {value}: {alias!r} is a name already; choose another"
            )
        aliases[alias] = name
    return aliases


def check_protocol(asked: str | None, manifest: Manifest) -> None:
    """Refuse a protocol that is not the artifact's own.

    Raises:
        UsageError: the artifact records another one, or is no decision model.
    """
    decision = manifest.decision
    if asked is None or (decision is not None and decision.protocol.value == asked):
        return
    found = "no decision model" if decision is None else f"compiled for {decision.protocol.value}"
    raise UsageError(
        f"--decision-protocol {asked}: artifact {manifest.name} is {found}; leave the option out"
    )
