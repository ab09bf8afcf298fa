"""What a check of a registry finds: damage, and things that are merely unfinished."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import CHECK


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence on one file, its path relative to the registry."""

    path: str
    problem: str


@dataclass(slots=True)
class Findings:
    """Filled while a registry is gone through.

    Attributes:
        damage: what is not what it should be.
        notes: what a killed writer left for the next one, and what `gc` may remove.
    """

    location: str
    damage: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def damaged(self, path: str, problem: str) -> None:
        """Record damage; the same words on one file count once."""
        finding = Finding(path=path, problem=problem)
        if finding not in self.damage:
            self.damage.append(finding)

    def note(self, path: str, problem: str) -> None:
        """Record something that is no damage."""
        self.notes.append(Finding(path=path, problem=problem))

    @contextmanager
    def checking(self, path: str) -> Iterator[None]:
        """Record a refusal of the body as damage of `path`, or of the file that it names."""
        try:
            yield
        except RefusedError as error:
            self._refused(path, str(error))

    def listed(self, storage: RegistryStorage, folder: str) -> tuple[str, ...]:
        """List a folder; one that cannot be listed is damage, and empty."""
        found: list[str] = []
        with self.checking(folder):
            found.extend(storage.list(folder))
        return tuple(found)

    def _refused(self, path: str, message: str) -> None:
        message = message.removesuffix(f"; {CHECK}")
        prefix = f"{self.location.rstrip('/')}/"
        if message.startswith(prefix):
            path, _, message = message[len(prefix) :].partition(": ")
        self.damaged(path, message)
