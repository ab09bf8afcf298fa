"""What a compile may be asked for: one frozen dataclass that holds every default.

Flags, environment and TOML are derived from its fields. Knows nothing of click, files or torch.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from infinity_v3.artifacts.decision import DecisionProtocol
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
MAX_THREADS = 4096
"""Beyond any machine, and below what the operating system gives one process."""
COMPILED_POOLINGS = tuple(PoolingMode)


class ValueType(Enum):
    """How a value is written in flags, environment and TOML; the enum's value says so in words."""

    TEXT = "a string"
    COUNT = "a whole number"
    TEXTS = "an array of strings"
    PAIRS = "a table of strings"
    CHOICE = "true or false"


def _about(text: str, value_type: ValueType, *, key: str, metavar: str) -> dict[str, object]:
    return {"help": text, "type": value_type, "key": key, "metavar": metavar}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """One compile; values are checked here, so that code meets the same rules as a flag.

    Attributes:
        checkpoint: directory of a checkpoint, or a hub id ("org/name").
        out: directory of the artifact; must not exist.
        targets: names of the engines to build; empty = every CPU target this host can build.
        name: name inside the artifact; None = derived from the checkpoint's id.
        revision: commit, tag or branch of a hub id.
        task: what the artifact does; None = read from the checkpoint.
        pooling: the first is the default, further ones are compiled in beside it; empty = the
            checkpoint's own.
        yes_token, no_token: the two answers of a generative reranker; None = "yes" and "no".
        decision_protocol: how a decision model is asked; None = read from the checkpoint.
        max_sequence_length: tokens per input, special tokens included; None = the checkpoint's own
            limit.
        labels: free strings for build.json; outside the artifact's identity.
        kernel_cache: directory of kernel libraries built earlier; None = the user's own cache, or
            none where that cannot be written.
        embed_limit_mb: weights of up to this many megabytes (10^6 bytes) are embedded in each
            engine, larger ones shared by all of a precision; 0 = always shared.
        keep_program: whether the exported graphs are kept, so that targets can be added later.
        threads: threads of compiler jobs and of the reference model; None = all CPUs this process
            may use.
    """

    checkpoint: str = field(
        metadata=_about(
            "Checkpoint directory, or hub id such as org/name.",
            ValueType.TEXT,
            key="checkpoint",
            metavar="CHECKPOINT",
        )
    )
    out: Path = field(
        metadata=_about(
            "Directory of the new artifact; an existing one is never overwritten.",
            ValueType.TEXT,
            key="out",
            metavar="DIR",
        )
    )
    targets: tuple[str, ...] = field(
        default=(),
        metadata=_about(
            "Engine to build; repeat for several. Each one adds build time and file size, and each "
            "host runs the best it can. [default: every CPU target this host can build]",
            ValueType.TEXTS,
            key="target",
            metavar="TARGET",
        ),
    )
    name: str | None = field(
        default=None,
        metadata=_about(
            "Name of the artifact. [default: from the checkpoint's id]",
            ValueType.TEXT,
            key="name",
            metavar="NAME",
        ),
    )
    revision: str | None = field(
        default=None,
        metadata=_about(
            "Commit, tag or branch of a hub id; a commit makes the compile repeatable.",
            ValueType.TEXT,
            key="revision",
            metavar="REVISION",
        ),
    )
    task: Kind | None = field(
        default=None,
        metadata=_about(
            "What the artifact does: "
            + ", ".join(kind.value for kind in Kind)
            + ". Generative and pre-training checkpoints do not say it themselves. [default: from "
            "the checkpoint]",
            ValueType.TEXT,
            key="task",
            metavar="TASK",
        ),
    )
    pooling: tuple[PoolingMode, ...] = field(
        default=(),
        metadata=_about(
            "How token vectors become one vector: "
            + ", ".join(mode.value for mode in COMPILED_POOLINGS)
            + ". Repeat to compile alternatives in; the first is the default. [default: the "
            "checkpoint's own]",
            ValueType.TEXTS,
            key="pooling",
            metavar="MODE",
        ),
    )
    yes_token: str | None = field(
        default=None,
        metadata=_about(
            "Token whose probability is the score of a generative reranker. [default: yes]",
            ValueType.TEXT,
            key="yes-token",
            metavar="TOKEN",
        ),
    )
    no_token: str | None = field(
        default=None,
        metadata=_about(
            "Token that a generative reranker answers with otherwise. [default: no]",
            ValueType.TEXT,
            key="no-token",
            metavar="TOKEN",
        ),
    )
    decision_protocol: DecisionProtocol | None = field(
        default=None,
        metadata=_about(
            "How a decision model is asked: "
            + ", ".join(protocol.value for protocol in DecisionProtocol)
            + ". One that the checkpoint's files contradict is refused. [default: from the "
            "checkpoint]",
            ValueType.TEXT,
            key="decision-protocol",
            metavar="PROTOCOL",
        ),
    )
    max_sequence_length: int | None = field(
        default=None,
        metadata=_about(
            "Tokens per input, special tokens included; lower saves memory and cuts long inputs. "
            "[default: the checkpoint's limit]",
            ValueType.COUNT,
            key="max-sequence-length",
            metavar="TOKENS",
        ),
    )
    labels: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_about(
            "Free note kept in build.json, outside the artifact's identity; repeat for several.",
            ValueType.PAIRS,
            key="label",
            metavar="KEY=VALUE",
        ),
    )
    kernel_cache: Path | None = field(
        default=None,
        metadata=_about(
            "Where built kernel libraries are kept, so that the next compile skips them. "
            "[default: $XDG_CACHE_HOME/infinity_v3/kernels]",
            ValueType.TEXT,
            key="kernel-cache",
            metavar="DIR",
        ),
    )
    embed_limit_mb: int = field(
        default=256,
        metadata=_about(
            "Weights up to this size are embedded in each engine, which is fastest; larger ones "
            "are kept once per precision and mapped, which saves disk and memory. [default: 256]",
            ValueType.COUNT,
            key="embed-limit-mb",
            metavar="MB",
        ),
    )
    keep_program: bool = field(
        default=False,
        metadata=_about(
            "Keep the exported graph of each precision, so that `retarget` can add engines without "
            "the checkpoint; the artifact grows by the weights of each, float32 in any case. "
            "[default: false]",
            ValueType.CHOICE,
            key="keep-program",
            metavar="",
        ),
    )
    threads: int | None = field(
        default=None,
        metadata=_about(
            "Threads to compile with; fewer leaves the machine usable meanwhile. "
            "[default: all CPUs this process may use]",
            ValueType.COUNT,
            key="threads",
            metavar="COUNT",
        ),
    )

    @property
    def asked_kind(self) -> Kind | None:
        """The task, also where a pooling implies it."""
        return Kind.SPARSE if PoolingMode.SPLADE in self.pooling else self.task

    def __post_init__(self) -> None:
        """Refuse values that no compile could use.

        Raises:
            UsageError: naming the option, what was expected and what was found.
        """
        _check_not_empty("checkpoint", self.checkpoint)
        _check_not_empty("out", str(self.out))
        _check_not_empty("--yes-token", self.yes_token)
        _check_not_empty("--no-token", self.no_token)
        _check_names("target", self.targets)
        _check_names("name", () if self.name is None else (self.name,))
        _check_names("label", self.labels)
        _check_unique("target", self.targets)
        _check_unique("pooling", [mode.value for mode in self.pooling])
        _check_at_least("max-sequence-length", self.max_sequence_length, 1)
        _check_threads(self.threads)
        _check_at_least("embed-limit-mb", self.embed_limit_mb, 0)
        _check_poolings(self.pooling, self.task)


def _check_not_empty(key: str, value: str | None) -> None:
    if value is not None and not value.strip():
        raise UsageError(f"{key}: expected a value, found an empty string")


def _check_names(key: str, names: Iterable[str]) -> None:
    for name in names:
        if not NAME_PATTERN.fullmatch(name):
            raise UsageError(
                f"--{key}: expected a name of letters, digits and '._+-' that starts with a letter "
                f"or digit and has at most 100 characters, found {name!r}"
            )


def _check_unique(key: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise UsageError(f"--{key}: {value} is given twice; name each one once")
        seen.add(value)


def _check_at_least(key: str, value: int | None, lowest: int) -> None:
    if value is not None and value < lowest:
        raise UsageError(f"--{key}: expected a whole number from {lowest}, found {value}")


def _check_threads(value: int | None) -> None:
    if value is not None and not 1 <= value <= MAX_THREADS:
        raise UsageError(
            f"--threads: expected a whole number from 1 to {MAX_THREADS}, found {value}"
        )


def _check_poolings(modes: tuple[PoolingMode, ...], task: Kind | None) -> None:
    is_sparse = PoolingMode.SPLADE in modes
    if is_sparse and (len(modes) > 1 or task not in (None, Kind.SPARSE)):
        raise UsageError(
            "--pooling: splade makes sparse vectors and stands alone; compile an artifact of its "
            "own"
        )
