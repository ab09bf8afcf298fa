"""What hosting platforms say of paths and tasks, in environment variables of their own."""

from collections.abc import Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError

SIMILARITY_TASK = "sentence-similarity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """The wishes of a platform.

    Attributes:
        task: what an embedding model does on the paths whose meaning depends on the kind; anything
            but "sentence-similarity" means that it embeds.
        predict_path: a further path of /vertex.
        health_path: a further path of /health.
    """

    task: str | None = None
    predict_path: str | None = None
    health_path: str | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Hosting":
        """Read the variables; an empty one counts as unset.

        Raises:
            UsageError: a path is none.
        """
        return cls(
            task=environ.get("TASK"),
            predict_path=_path(environ, "AIP_PREDICT_ROUTE"),
            health_path=_path(environ, "AIP_HEALTH_ROUTE"),
        )


def _path(environ: Mapping[str, str], variable: str) -> str | None:
    value = environ.get(variable)
    if not value:
        return None
    if not value.startswith("/") or value.endswith("/*"):
        raise UsageError(
            f"{variable}={value}: expected a path that starts with '/', such as /score"
        )
    return value
