"""The options that every model has its own value of.

Owns their names, types, defaults and help texts. Knows nothing of where a value comes from.
"""

from dataclasses import dataclass

from infinity_v3.runtime.batch_sizes import DEFAULT_MAX_BATCH_TOKENS
from infinity_v3.server.option import opt
from infinity_v3.server.option_types import (
    BoolType,
    ChoiceType,
    DeviceListType,
    IntOrWordType,
    IntType,
    PatternType,
    TextType,
)

_COUNT = IntType(minimum=1, maximum=2**40)
_BOOL = BoolType()
_NAME = PatternType(
    metavar="NAME",
    pattern="[^\\x00-\\x1f\\x7f\\ud800-\\udfff]+",
    expected="one or more characters, no control characters among them",
)
_POOLINGS = (
    "auto",
    "cls",
    "mean",
    "max",
    "mean-sqrt-len",
    "weighted-mean",
    "last-token",
    "splade",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Options that every model has its own value of."""

    model_id: str = opt(
        "Model",
        TextType(metavar="SOURCE"),
        "What to serve: an artifact directory, a reference to an artifact of a registry (name, "
        "name:channel, name==version, name@sha256:...), a checkpoint directory or a hub id. The "
        "last two are compiled once into the artifact cache: the first start takes minutes, later "
        "ones do not. Repeat it to serve several; they share the host, so each gets slower under "
        "load.",
    )
    watch_channel: bool = opt(
        "Model",
        _BOOL,
        "Follow the channel that the reference names, and swap to what it is moved to without a "
        "restart. Promotions and rollbacks then reach every server by themselves; both artifacts "
        "are in memory while one takes over from the other.",
        default=False,
    )
    revision: str | None = opt(
        "Model",
        TextType(metavar="REV"),
        "Commit, tag or branch of a hub id. Pin a commit to be sure that every host serves the "
        "same weights; unpinned, each host stays at what it compiled first.",
        default=None,
        is_optional=True,
    )
    served_model_name: str | None = opt(
        "Model",
        _NAME,
        "Public name, different for each model; may contain '/'. Clients and dashboards depend on "
        "it: a name of your own survives a change of the artifact.",
        default=None,
        is_optional=True,
        default_note="the artifact's name",
    )
    torch_device: str = opt(
        "Target",
        ChoiceType(choices=("auto", "cpu", "cuda")),
        "Device whose compiled targets may run. 'auto' takes a GPU where one matches a target, "
        "else the CPU; a named device fails at the start rather than run elsewhere.",
        default="auto",
    )
    dtype: str = opt(
        "Target",
        ChoiceType(choices=("auto", "float32", "float16", "bfloat16", "int8")),
        "Number format to pick a target for. 'auto' takes the fastest target this host can run; "
        "'float32' is closest to the reference model and slower; 'int8' is faster than 'auto' and "
        "less exact, so it is never chosen by itself.",
        default="auto",
    )
    backend: str = opt(
        "Target",
        TextType(metavar="FORMAT"),
        "Engine format to pick a target of: auto, aoti (also called libtorch), tensorrt or onnx. "
        "A named format fails at the start where the artifact has none of it.",
        default="auto",
    )
    device_id: int | None = opt(
        "Target",
        IntType(maximum=9999, metavar="N"),
        "Run on this visible GPU only and leave the others free. Excludes --backend-device-ids; "
        "asks for a cuda target.",
        default=None,
        is_optional=True,
        default_note="all visible GPUs",
    )
    backend_device_ids: str | None = opt(
        "Target",
        DeviceListType(),
        "One full replica of the model on each listed GPU, 'auto' for all visible ones: more "
        "throughput, and the memory of the model on each. Asks for a cuda target.",
        default=None,
        is_optional=True,
        default_note="all visible GPUs",
    )
    enable_fp8_dynamic: bool = opt(
        "Target",
        _BOOL,
        "Run the artifact's dynamic-FP8 target: the fastest on GPUs that have FP8, further from "
        "the reference model than half precision.",
        default=False,
    )
    pooling: str = opt(
        "Text",
        ChoiceType(choices=_POOLINGS, metavar="MODE"),
        f"Pooling to use instead of the checkpoint's: {', '.join(_POOLINGS)}. It must be compiled "
        "into the artifact, and each one compiled in makes the engine larger. "
        "Vectors of different poolings cannot be compared.",
        default="auto",
    )
    default_prompt_name: str | None = opt(
        "Text",
        TextType(metavar="NAME"),
        "Prompt of the artifact's table put before texts of requests that name none. Excludes "
        "--default-prompt. Vectors with and without a prompt differ: index and query must agree.",
        default=None,
        is_optional=True,
        default_note="the checkpoint's",
    )
    default_prompt: str | None = opt(
        "Text",
        TextType(allow_empty=True),
        "Literal text put before texts of requests that name no prompt; empty switches the "
        "checkpoint's default off. It counts against the sequence length.",
        default=None,
        is_optional=True,
        default_note="the checkpoint's",
    )
    auto_truncate: bool = opt(
        "Text",
        _BOOL,
        "Cut inputs that are too long unless a request says otherwise. 'false' refuses them "
        "unless a request allows cutting: clients learn of it, and must shorten texts themselves.",
        default=True,
    )
    decision_protocol: str | None = opt(
        "Text",
        ChoiceType(choices=("laya", "onejev", "rune", "clef", "pplx", "d3"), metavar="PROTOCOL"),
        "How a decision model is asked: laya, or another protocol whose artifacts this release "
        "does not run yet. The artifact says it; one that differs from it fails at the start, so "
        "that no model is asked in another one's words.",
        default=None,
        is_optional=True,
        default_note="the artifact's",
    )
    max_sequence_length: int | None = opt(
        "Text",
        _COUNT,
        "Longest input in tokens, prompt and special tokens included. Lower bounds the cost of "
        "one input and cuts or refuses more of them.",
        default=None,
        is_optional=True,
        default_note="the artifact's limit",
    )
    max_batch_tokens: int | None = opt(
        "Batching",
        _COUNT,
        "Most tokens in one engine batch, and so in one input. Higher raises throughput under load "
        "and memory; lower shortens the wait behind a running batch. The default gives way to a "
        "smaller limit of the target, an explicit value does not.",
        default=None,
        default_note=str(DEFAULT_MAX_BATCH_TOKENS),
    )
    max_batch_requests: int | None = opt(
        "Batching",
        _COUNT,
        "Most items in one engine batch. Unset leaves it to the token budget, which suits all but "
        "very short texts; lower shortens the wait behind a batch of those.",
        default=None,
        is_optional=True,
        default_note="no limit",
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
        "Most admitted, unfinished tokens per model. A longer queue hides overload behind latency; "
        "a shorter one refuses bursts that could have been served. Unset: 64 full batches, or "
        "ten seconds of the target's measured throughput if that is less, but two full batches "
        "at least.",
        default=None,
        is_optional=True,
        default_note="computed",
    )
    max_client_batch_size: int = opt(
        "Admission",
        _COUNT,
        "Most items in one request. Lower keeps single clients from filling the queue; higher "
        "saves round trips.",
        default=1024,
    )
    cpu_replicas: int | None = opt(
        "Host",
        IntOrWordType(word="auto", number=IntType(minimum=1, maximum=1024)),
        "Engine calls that run at the same time, each on CPUs of its own and all on one set of "
        "weights. More of them with fewer threads each raise throughput on many cores, as threads "
        "of one call wait for one another; a single request then takes longer. 'auto' uses what "
        "was measured for the target, else 1.",
        default=None,
    )
    cpu_threads_per_replica: int | None = opt(
        "Host",
        IntOrWordType(word="auto", number=IntType(minimum=1, maximum=4096)),
        "Threads of one engine call; 'auto' uses what was measured for the target, else the CPUs "
        "available to the process, which a single replica gets at most; of several, each gets an "
        "equal share. Fewer leave room for tokenisation and neighbours.",
        default=None,
    )
    tokenization_workers: int | None = opt(
        "Host",
        IntOrWordType(word="auto", number=IntType(minimum=1, maximum=256)),
        "Tokeniser threads; 'auto' is CPUs - 1, between 1 and 16. More help large batches of long "
        "texts and take CPU time from the engine.",
        default=None,
    )
