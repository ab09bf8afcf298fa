"""What a build file asks for, as frozen dataclasses. Reads no file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infinity_v3.compiler.options import RawValue
from infinity_v3.compiler.request import CompileRequest

KEY_FIELD = "{key}"
"""In a version: stands for the first digits of the build key."""
SHOWN_KEY_DIGITS = 12
LABEL = "build-key"
"""Label of build.json that holds the build key."""
DEFAULT_VERSION = KEY_FIELD
DEFAULT_OUT = "artifacts"
DEFAULT_JOBS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GateBounds:
    """What an artifact must keep before it is pushed; None or () = not asked for.

    Attributes:
        min_cosine: lowest cosine of any output, to the reference and alone against batched.
        max_abs: largest difference of any output; of what is not normalised relative to
            max(1, |x|).
        required_targets: names of targets that must be in it.
        max_size_mb: all files together, in 10^6 bytes.
    """

    min_cosine: float | None = None
    max_abs: float | None = None
    required_targets: tuple[str, ...] = ()
    max_size_mb: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """One `[[model]]` with the defaults filled in.

    Attributes:
        place: file, entry and name, as errors begin.
        name: name of the artifact.
        version: of the artifact; may hold `KEY_FIELD`.
        request: the checked options; its `out` is that of the artifact where the version is
            literal.
        options: the options as written, by key, without those that a build decides itself.
        expected_files: sha256 (64 hex digits) by the path of a checkpoint file.
        expected_id: artifact id, `sha256:<64 hex>`.
        push_to: the channel that the version is meant for; a build moves no channel.
    """

    place: str
    name: str
    version: str
    request: CompileRequest
    options: Mapping[str, RawValue]
    expected_files: Mapping[str, str] = field(default_factory=dict)
    expected_id: str | None = None
    gates: GateBounds = field(default_factory=GateBounds)
    push_to: str | None = None

    @property
    def title(self) -> str:
        """Name and version, before the build key is known."""
        return f"{self.name}=={self.version}"

    @property
    def is_templated(self) -> bool:
        """Whether the version follows from the build key."""
        return KEY_FIELD in self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFile:
    """A whole build file.

    Attributes:
        path: the file, as it was named.
        registry: directory or URL; None = artifacts stay in `out`.
        out: folder of the artifacts, `<out>/<name>/<version>`.
        jobs: models built at a time.
    """

    path: Path
    registry: str | None
    out: Path
    jobs: int
    models: tuple[ModelEntry, ...]
