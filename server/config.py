"""Every option of the server, once: flags, INFINITY_* names and TOML keys come from these fields.

Owns names, types, defaults and help texts; those of one model are in `model_config`. Knows nothing
of where a value comes from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from infinity_v3.server.model_config import ModelConfig
from infinity_v3.server.option import Option, opt, option_of
from infinity_v3.server.option_types import (
    BoolType,
    ChoiceType,
    IntType,
    PathType,
    PatternType,
    SecondsType,
    SwitchType,
    TextType,
)

__all__ = ["TOPICS", "Configuration", "ModelConfig", "ServeConfig", "all_options"]

_BOOL = BoolType()
_KEY = PatternType(
    metavar="KEY",
    pattern=r"[!-~]([ -~]*[!-~])?",
    expected="one or more printable ASCII characters, as HTTP headers carry, no blank at the ends",
)
_ORIGIN = PatternType(
    metavar="ORIGIN",
    pattern=r"\*|null|[a-z][a-z0-9+.-]*://[^/?#@\s]+",
    expected="scheme://host or scheme://host:port, as browsers send it, without a path; or '*'",
)
_ALIAS = PatternType(
    metavar="ALIAS=NAME",
    pattern="[^=\\x00-\\x1f\\x7f\\ud800-\\udfff]+=[^\\x00-\\x1f\\x7f\\ud800-\\udfff]+",
    expected="an alias, '=' and the public name of a decision model",
)
_PORT = IntType(minimum=0, maximum=65535, metavar="PORT")

TOPICS: Mapping[str, str] = {
    "Model": "What is served, and under which name.",
    "Target": "Which of an artifact's compiled targets runs. This release runs CPU targets; where "
    "an option asks for a target that the artifact or the host lacks, the start ends with the "
    "list of those there are.",
    "Text": "How texts become inputs.",
    "Batching": "How inputs become batches.",
    "Admission": "What is refused, and when.",
    "Host": "Threads.",
    "Network": "Where the server listens, and to whom it answers.",
    "Storage": "Where it keeps what can be made again.",
    "Safety": "What it runs.",
    "Lifecycle": "How it ends.",
    "Logging": "What it writes about itself.",
    "Configuration": "Where options come from.",
}
"""What the options of each topic decide, in the order in which topics are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Options of the process as a whole, and the models it serves."""

    models: tuple[ModelConfig, ...]
    hostname: str = opt(
        "Network",
        TextType(metavar="ADDRESS"),
        "Address to listen on: an IP address of this host ('::' for all, IPv6 included) or a name. "
        "The default reaches every network of the host; '127.0.0.1' keeps others out.",
        default="0.0.0.0",
    )
    port: int = opt(
        "Network",
        _PORT,
        "Port to listen on; 0 takes any free one, named in the ready line, for tests and launchers "
        "that read it.",
        default=3000,
    )
    prometheus_port: int = opt(
        "Network",
        _PORT,
        "Port of a second listener with the metrics alone, 0 for none. It needs no key: keep it "
        "inside the cluster. If the default port is busy, the server goes without; a port named "
        "here must be free.",
        default=9000,
    )
    http2: bool = opt(
        "Network",
        _BOOL,
        "Also accept cleartext HTTP/2 with prior knowledge: fewer connections from proxies that "
        "speak it, some CPU per request.",
        default=False,
    )
    cors_allow_origin: tuple[str, ...] = opt(
        "Network",
        _ORIGIN,
        "Browser origin allowed to call; repeat it for several. '*' or nothing allows any page to "
        "use the server from its visitors' browsers.",
        default=(),
        is_repeatable=True,
        default_note="any",
    )
    api_key: str | None = opt(
        "Network",
        _KEY,
        "Key that clients send as 'Authorization: Bearer KEY'. Prefer the environment: arguments "
        "are visible to other users of the host. Without one, whoever reaches the port may use it.",
        default=None,
        is_secret=True,
        default_note="none",
    )
    decision_alias: tuple[str, ...] = opt(
        "Model",
        _ALIAS,
        "Further name of a decision model on /v1/systemone, as ALIAS=SERVED_NAME; repeat it for "
        "several. Clients that ask for a name they were built with need no change then. "
        "'jev-latest' and 'jev-preview' mean the first decision model unless given here.",
        default=(),
        is_repeatable=True,
        default_note="none",
    )
    payload_limit: int = opt(
        "Admission",
        IntType(minimum=1, maximum=2**31 - 1, metavar="BYTES"),
        "Largest request body, before and after decompression. Higher admits larger batches and "
        "costs memory.",
        default=16777216,
    )
    body_read_timeout_s: float = opt(
        "Admission",
        SecondsType(allow_zero=False),
        "Time a client has to send its body. Lower frees slow connections sooner; too low cuts "
        "off large bodies on slow lines.",
        default=30.0,
        flag="body-read-timeout",
    )
    priority_queue_bonus_ms: int = opt(
        "Admission",
        IntType(minimum=0, maximum=3_600_000, metavar="MS"),
        "Head start of requests with service_tier 'priority'. Higher lets them overtake more and "
        "the others wait longer, by that much at most; 0 is plain first in, first out.",
        default=1000,
    )
    response_compression_threshold: int | None = opt(
        "Network",
        IntType(minimum=0, maximum=2**40, metavar="BYTES"),
        "Compress replies of at least that many bytes for clients that allow it; 'none' never. "
        "Lower saves bandwidth and costs CPU.",
        default=16384,
        is_optional=True,
    )
    huggingface_hub_cache: Path | None = opt(  # noqa: RUF009  # a field, see opt
        "Storage",
        PathType(),
        "Download cache of hub checkpoints. A volume of its own survives the container; it holds "
        "the checkpoint beside what is compiled from it.",
        default=None,
        default_note="the hub library's, see HF_HOME",
    )
    artifact_cache: Path | None = opt(  # noqa: RUF009  # a field, see opt
        "Storage",
        PathType(),
        "Where checkpoints are compiled to and artifacts of a registry are pulled to. Keep it on a "
        "disk that outlives the process, or every start compiles or pulls again. It holds native "
        "code: nobody else may own it.",
        default=None,
        default_note="$XDG_CACHE_HOME/infinity_v3",
    )
    registry: str | None = opt(
        "Storage",
        TextType(metavar="LOCATION"),
        "Registry that references such as name:prod are looked up in: a directory, or a URL such "
        "as s3://bucket/path. A directory must be mounted on every host; a bucket need not be, and "
        "answers slower.",
        default=None,
        default_note="$XDG_DATA_HOME/infinity_v3/registry",
    )
    watch_interval_s: float = opt(
        "Lifecycle",
        SecondsType(allow_zero=False),
        "Time between two looks at a channel that is watched. Shorter follows a promotion sooner "
        "and asks the registry more often: every server reads one or two small files each time.",
        default=10.0,
        flag="watch-interval",
    )
    require_signature: Path | None = opt(  # noqa: RUF009  # a field, see opt
        "Safety",
        PathType(metavar="FILE"),
        "Public key file (Ed25519): refuse artifacts, and moves of their channels, that its owner "
        "has not signed. Who can write to the registry, but has no key, can then run nothing here; "
        "checkpoints and hub ids, which nobody signs, are no longer served.",
        default=None,
        default_note="none",
    )
    allow_shared_artifacts: bool = opt(
        "Safety",
        _BOOL,
        "Accept artifact directories that group or others can write to. They contain native code: "
        "whoever can write there can run code here.",
        default=False,
    )
    allow_newer_torch: bool = opt(
        "Safety",
        _BOOL,
        "Run a target on a newer torch minor than built it, after a smoke run. Numbers were "
        "verified on the older.",
        default=False,
    )
    verify_digests: str = opt(
        "Safety",
        ChoiceType(choices=("auto", "always")),
        "When file digests are checked. 'auto' remembers unchanged files; 'always' reads every "
        "file at each start, which takes the longer the larger they are.",
        default="auto",
    )
    drain_timeout_s: float = opt(
        "Lifecycle",
        SecondsType(),
        "How long admitted requests may take to finish after SIGTERM; 0 does not wait. Longer "
        "loses fewer replies and delays a restart; the orchestrator must allow more than that.",
        default=30.0,
        flag="drain-timeout",
    )
    log_level: str = opt(
        "Logging",
        ChoiceType(choices=("error", "warning", "info", "debug")),
        "Least severe message to log. 'warning' leaves out what is served and where each option "
        "comes from.",
        default="info",
    )
    json_output: bool = opt(
        "Logging",
        _BOOL,
        "Log JSON objects, one a line: for machines, not for eyes.",
        default=False,
    )
    request_log: Path | None = opt(  # noqa: RUF009  # a field, see opt
        "Logging",
        PathType(metavar="FILE"),
        "Append one JSON line per request with a valid key: identifiers, counts and times, never "
        "texts. The file grows with the traffic.",
        default=None,
        default_note="none",
    )
    config: Path | None = opt(  # noqa: RUF009  # a field, see opt
        "Configuration",
        PathType(metavar="FILE"),
        "TOML file with these options as keys; [[model]] tables hold the per-model ones. One file "
        "is easier to review than many flags; variables and flags win over it.",
        default=None,
        in_file=False,
        default_note="none",
    )
    print_config: str = opt(
        "Configuration",
        SwitchType(word="json"),
        "Print every option with its value and origin, then exit; opens no model. 'json' prints "
        "one object for programs to read.",
        default="false",
    )


def all_options() -> tuple[Option, ...]:
    """Every option, per-model ones first, in declaration order."""
    per_model = tuple(option_of(spec, is_per_model=True) for spec in fields(ModelConfig))
    of_process = (spec for spec in fields(ServeConfig) if "option" in spec.metadata)
    return per_model + tuple(option_of(spec, is_per_model=False) for spec in of_process)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The resolved configuration.

    Attributes:
        reported_models: the models; where none is named, one with an empty id, so that reports
            have all options.
        origins: option name -> origins, one per reported model for per-model options, else one;
            "default" when unset.
        warnings: sentences to log once logging is set up.
    """

    serve: ServeConfig
    reported_models: tuple[ModelConfig, ...]
    origins: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...] = ()

    def is_explicit(self, option: str, model: int = 0) -> bool:
        """Whether the user set this option (for that model)."""
        return self.origins[option][model] != "default"
