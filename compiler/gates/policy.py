"""policy.toml: what each channel of a registry asks of an artifact, read strictly.

Owns keys, types and ranges. Knows nothing of how a gate finds its figures.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.names import NAME_RULE, is_name
from infinity_v3.artifacts.registry.paths import POLICY
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.artifacts.typed_json import Location, show
from infinity_v3.compiler.gates import policy_values as values

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CHANNELS = "channels"
MAX_POLICY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureRule:
    """Whether a valid signature is needed, and of which keys.

    Attributes:
        key_files: public keys; a relative path lies in the registry beside policy.toml, an absolute
            one on the host that promotes. Empty = the keys that the command line names.
    """

    is_required: bool = False
    key_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPolicy:
    """The gates of one channel; None and () = not asked for. Passed parity always is.

    Attributes:
        min_cosine: least cosine to the reference, of every target.
        max_abs: largest difference from the reference, of every target.
        required_targets: names of targets that the artifact must have.
        max_p50_slowdown: candidate / current, of the median time of a short text alone; >= 1.
        min_throughput_ratio: candidate / current, of tokens per second in full batches; > 0.
        golden_requests: file of requests and answers; `{name}` in it is the artifact's name.
        min_golden_agreement: share of them that must be answered alike.
        actors: key ids or `unverified:<user>`.
    """

    min_cosine: float | None = None
    max_abs: float | None = None
    required_targets: tuple[str, ...] = ()
    require_signature: SignatureRule = field(default_factory=SignatureRule)
    max_p50_slowdown: float | None = None
    min_throughput_ratio: float | None = None
    golden_requests: str | None = None
    min_golden_agreement: float = 1.0
    actors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The whole of policy.toml; `sha256` is of its bytes."""

    channels: Mapping[str, ChannelPolicy]
    sha256: str

    def of(self, channel: str) -> ChannelPolicy:
        """The gates of a channel.

        Raises:
            RefusedError: it has no section.
        """
        if channel not in self.channels:
            known = ", ".join(sorted(self.channels)) or "none"
            raise RefusedError(
                f"{POLICY}: expected a section [{CHANNELS}.{channel}], found sections for: {known}"
                f"{nearest(channel, self.channels)}; add one, or promote with --no-gates, which "
                "the log records"
            )
        return self.channels[channel]


def read_policy(data: bytes | None) -> Policy:
    """Read the bytes of policy.toml; None = there is no such file, and no channel has gates.

    Raises:
        RefusedError: names the key at fault, e.g. `policy.toml: channels.prod.min-cosine: ...`.
    """
    data = b"" if data is None else data
    at = Location(POLICY)
    document = _parse(data, at)
    for key in document:
        if key != CHANNELS:
            raise at.key(key).refuse(f"unknown key; known here: {CHANNELS}{nearest(key, _TOP)}")
    channels = values.table(document.get(CHANNELS, {}), at.key(CHANNELS))
    return Policy(
        channels={name: _channel(name, value, at) for name, value in channels.items()},
        sha256=hashlib.sha256(data).hexdigest(),
    )


def _parse(data: bytes, at: Location) -> Mapping[str, object]:
    if len(data) > MAX_POLICY_BYTES:
        raise at.refuse(f"expected at most {MAX_POLICY_BYTES} bytes, found {len(data)}")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise at.refuse(f"expected UTF-8, found an invalid byte at {error.start}") from None
    except RecursionError:
        raise at.refuse("expected a few levels, found deeply nested TOML") from None
    except ValueError as error:
        raise at.refuse(f"expected TOML, found: {error}") from None


def _channel(name: str, value: object, at: Location) -> ChannelPolicy:
    place = at.key(CHANNELS).key(name)
    if not is_name(name):
        raise place.refuse(f"expected the name of a channel, {NAME_RULE}, found {show(name)}")
    table = values.table(value, place)
    for key in table:
        if key not in _READERS:
            known = ", ".join(_READERS)
            raise place.key(key).refuse(f"unknown key{nearest(key, _READERS)}; known here: {known}")
    read = {
        key.replace("-", "_"): _READERS[key](found, place.key(key)) for key, found in table.items()
    }
    if "min-golden-agreement" in table and "golden-requests" not in table:
        raise place.key("min-golden-agreement").refuse(
            "expected golden-requests beside it, found none; name the file of requests"
        )
    # Every value was made by its own key's reader.
    return ChannelPolicy(**read)  # type: ignore[arg-type]


def _signature_rule(value: object, at: Location) -> SignatureRule:
    if isinstance(value, bool):
        return SignatureRule(is_required=value)
    if isinstance(value, str):
        return SignatureRule(is_required=True, key_files=(values.file(value, at),))
    if isinstance(value, list):
        files = values.items(value, at, values.file)
        return SignatureRule(is_required=True, key_files=files)
    raise at.refuse(
        "expected true, false, a file of a public key or an array of them, "
        f"found {values.describe(value)}"
    )


_TOP = (CHANNELS,)
_READERS: Mapping[str, Callable[[object, Location], object]] = {
    "min-cosine": values.number(-1.0, 1.0),
    "max-abs": values.number(0.0, None),
    "required-targets": lambda value, at: values.items(value, at, values.name),
    "require-signature": _signature_rule,
    "max-p50-slowdown": values.number(
        1.0, None, meaning="candidate / current, e.g. 1.1 = at most 10 % slower"
    ),
    "min-throughput-ratio": values.number(
        0.0, None, is_open=True, meaning="candidate / current, e.g. 0.9"
    ),
    "golden-requests": values.file,
    "min-golden-agreement": values.number(0.0, 1.0),
    "actors": lambda value, at: values.items(value, at, values.actor),
}
