"""Every option of the server, once: flags, INFINITY_* names and TOML keys come from these fields.

Owns names, types, defaults and help texts. Knows nothing of where a value comes from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from infinity_v3.server.option import Option, opt, option_of
from infinity_v3.server.option_types import (
    BoolType,
    ChoiceType,
    IntOrWordType,
    IntType,
    PathType,
    PatternType,
    SecondsType,
    TextType,
)

_COUNT = IntType(minimum=1, maximum=2**40)
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
_PORT = IntType(minimum=0, maximum=65535, metavar="PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Options that every model has its own value of."""

    model_id: str = opt(
        "Model",
        TextType(metavar="SOURCE"),
        "What to serve: an artifact directory, a checkpoint directory or a hub id. The last two "
        "are compiled once into the artifact cache: the first start takes minutes, later ones do "
        "not. Repeat it to serve several.",
    )
    revision: str | None = opt(
        "Model",
        TextType(metavar="REV"),
        "Commit, tag or branch of a hub id. Pin a commit to be sure that every host serves the "
        "same weights.",
        default=None,
        is_optional=True,
    )
    served_model_name: str | None = opt(
        "Model",
        TextType(metavar="NAME"),
        "Public name; may contain '/'. Default: the artifact's name.",
        default=None,
        is_optional=True,
    )
    torch_device: str = opt(
        "Model",
        ChoiceType(choices=("auto", "cpu")),
        "Device to pick a compiled target for; 'auto' takes the one that a target matches.",
        default="auto",
    )
    dtype: str = opt(
        "Model",
        ChoiceType(choices=("auto", "float32", "float16", "bfloat16")),
        "Number format to pick a target for. 'auto' takes the fastest target this host can run; "
        "'float32' is closest to the reference model and slower.",
        default="auto",
    )
    backend: str = opt(
        "Model",
        TextType(metavar="FORMAT"),
        "Engine format to pick a target of: auto or aoti (also called libtorch).",
        default="auto",
    )
    pooling: str = opt(
        "Model",
        ChoiceType(
            choices=(
                "auto",
                "cls",
                "mean",
                "max",
                "mean-sqrt-len",
                "weighted-mean",
                "last-token",
            )
        ),
        "Pooling to use instead of the checkpoint's; it must be compiled into the artifact.",
        default="auto",
    )
    default_prompt_name: str | None = opt(
        "Model",
        TextType(metavar="NAME"),
        "Prompt of the artifact's table put before texts of requests that name none. Excludes "
        "--default-prompt.",
        default=None,
        is_optional=True,
    )
    default_prompt: str | None = opt(
        "Model",
        TextType(allow_empty=True),
        "Literal text put before texts of requests that name no prompt; empty switches the "
        "checkpoint's default off. It counts against the sequence length.",
        default=None,
        is_optional=True,
    )
    auto_truncate: bool = opt(
        "Model",
        _BOOL,
        "Cut inputs that are too long unless a request says otherwise. 'false' refuses them, so "
        "that no text is shortened unseen.",
        default=True,
    )
    max_batch_tokens: int | None = opt(
        "Batching",
        _COUNT,
        "Most tokens in one engine batch, and so in one input. Higher raises throughput under load "
        "and memory; lower shortens the wait behind a running batch. Default: 16384, or what the "
        "target was compiled for if less.",
        default=None,
    )
    max_batch_requests: int | None = opt(
        "Batching",
        _COUNT,
        "Most items in one engine batch; unset leaves it to the token budget.",
        default=None,
        is_optional=True,
    )
    max_sequence_length: int | None = opt(
        "Batching",
        _COUNT,
        "Longest input in tokens, prompt and special tokens included. Lower bounds the cost of "
        "one input.",
        default=None,
        is_optional=True,
    )
    max_concurrent_requests: int = opt(
        "Admission",
        _COUNT,
        "HTTP requests in flight per model; one more is answered 429. Lower refuses clients early "
        "instead of letting them wait.",
        default=512,
    )
    max_queue_tokens: int | None = opt(
        "Admission",
        _COUNT,
        "Most admitted, unfinished tokens per model. A longer queue hides overload behind latency. "
        "Default: 64 full batches, or ten seconds of the target's measured throughput if that is "
        "less, but two full batches at least.",
        default=None,
        is_optional=True,
    )
    max_client_batch_size: int = opt(
        "Admission",
        _COUNT,
        "Most items in one request. Lower keeps single clients from filling the queue.",
        default=1024,
    )
    cpu_threads_per_replica: int | None = opt(
        "Host",
        IntOrWordType(word="auto", number=IntType(minimum=1, maximum=4096)),
        "Threads of one engine call; 'auto' uses what was measured for the target, else the CPUs "
        "available to the process. Fewer leave room for tokenisation and neighbours.",
        default=None,
    )
    tokenization_workers: int | None = opt(
        "Host",
        IntOrWordType(word="auto", number=IntType(minimum=1, maximum=256)),
        "Tokeniser threads; 'auto' is CPUs - 1, between 1 and 16.",
        default=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Options of the process as a whole, and the models it serves."""

    models: tuple[ModelConfig, ...]
    hostname: str = opt(
        "Network",
        TextType(metavar="ADDRESS"),
        "Address to listen on ('::' for IPv6).",
        default="0.0.0.0",
    )
    port: int = opt(
        "Network",
        _PORT,
        "Port to listen on; 0 takes any free one, named in the ready line.",
        default=3000,
    )
    prometheus_port: int = opt(
        "Network",
        _PORT,
        "Port of the separate metrics listener, 0 for none. It needs no key: keep it inside the "
        "cluster.",
        default=9000,
    )
    http2: bool = opt(
        "Network", _BOOL, "Also accept cleartext HTTP/2 with prior knowledge.", default=False
    )
    cors_allow_origin: tuple[str, ...] = opt(
        "Network",
        _ORIGIN,
        "Browser origin allowed to call; repeat it for several, '*' or nothing allows any.",
        default=(),
        is_repeatable=True,
    )
    api_key: str | None = opt(
        "Network",
        _KEY,
        "Key that clients send as 'Authorization: Bearer KEY'. Prefer the environment: arguments "
        "are visible to other users of the host.",
        default=None,
        is_secret=True,
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
        "Time a client has to send its body. Lower frees slow connections sooner.",
        default=30.0,
        flag="body-read-timeout",
    )
    priority_queue_bonus_ms: int = opt(
        "Admission",
        IntType(minimum=0, maximum=3_600_000, metavar="MS"),
        "Head start of requests with service_tier 'priority'; 0 is plain first in, first out.",
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
        "Download cache of hub checkpoints. Default: the hub library's.",
        default=None,
    )
    artifact_cache: Path | None = opt(  # noqa: RUF009  # a field, see opt
        "Storage",
        PathType(),
        "Where checkpoints are compiled to. Default: $XDG_CACHE_HOME/infinity_v3.",
        default=None,
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
        "file at each start.",
        default="auto",
    )
    drain_timeout_s: float = opt(
        "Lifecycle",
        SecondsType(),
        "How long admitted requests may take to finish after SIGTERM; 0 does not wait.",
        default=30.0,
        flag="drain-timeout",
    )
    log_level: str = opt(
        "Logging",
        ChoiceType(choices=("error", "warning", "info", "debug")),
        "Least severe message to log.",
        default="info",
    )
    json_output: bool = opt("Logging", _BOOL, "Log JSON objects, one a line.", default=False)
    request_log: Path | None = opt(  # noqa: RUF009  # a field, see opt
        "Logging",
        PathType(metavar="FILE"),
        "Append one JSON line per accepted request: identifiers, counts and times, never texts.",
        default=None,
    )
    config: Path | None = opt(  # noqa: RUF009  # a field, see opt
        "Configuration",
        PathType(metavar="FILE"),
        "TOML file with these options as keys; [[model]] tables hold the per-model ones.",
        default=None,
        in_file=False,
    )
    print_config: bool = opt(
        "Configuration",
        _BOOL,
        "Print every option with its value and origin, then exit; opens no model.",
        default=False,
        in_file=False,
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
        origins: option name -> origins, one per model for per-model options, else one; "default"
            when unset.
        warnings: sentences to log once logging is set up.
    """

    serve: ServeConfig
    origins: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...] = ()

    def is_explicit(self, option: str, model: int = 0) -> bool:
        """Whether the user set this option (for that model)."""
        return self.origins[option][model] != "default"
