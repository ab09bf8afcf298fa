"""Which decision protocol a checkpoint shows to be for, by the files that lie in it.

Knows nothing of what the files say.
"""

from pathlib import Path

from infinity_v3.artifacts.decision import DecisionProtocol
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.json_file import is_present
from infinity_v3.model_specs.laya_config import LAYA_CONFIG

OPTION = "--decision-protocol"
_UNSURE = "readout.json"
"""Other models may have a file of that name, too."""
_EVIDENCE: tuple[tuple[str, tuple[DecisionProtocol, ...]], ...] = (
    (LAYA_CONFIG, (DecisionProtocol.LAYA,)),
    ("joint_head_config.json", (DecisionProtocol.CLEF,)),
    ("decision_config.json", (DecisionProtocol.PPLX, DecisionProtocol.D3)),
    (_UNSURE, (DecisionProtocol.ONEJEV,)),
)
"""A file and the protocols that have it, the surest first."""
COMPILED_PROTOCOLS = (DecisionProtocol.LAYA,)


def find_protocol(path: Path, asked: DecisionProtocol | None) -> DecisionProtocol | None:
    """The protocol of a checkpoint directory; None where it is for something else.

    Args:
        path: the checkpoint.
        asked: `--decision-protocol`; None = the files decide.

    Raises:
        UsageError: the files contradict what was asked, or the protocol is not compiled.
    """
    file, shown = next(
        ((name, shown) for name, shown in _EVIDENCE if is_present(path / name)), (None, ())
    )
    if asked is None:
        found = () if file == _UNSURE else shown
    else:
        _check_asked(path, file, shown, asked)
        found = (asked,)
    if not set(found) <= set(COMPILED_PROTOCOLS):
        raise UsageError(
            f"{path}: a decision checkpoint of the protocol {_either(found)}, which this release "
            f"does not compile; it compiles {_either(COMPILED_PROTOCOLS)}"
        )
    return found[0] if found else None


def _check_asked(
    path: Path, file: str | None, shown: tuple[DecisionProtocol, ...], asked: DecisionProtocol
) -> None:
    if file is not None and asked not in shown:
        raise UsageError(
            f"{OPTION} {asked.value}: {path / file} shows a checkpoint of {_either(shown)}; leave "
            "the option out"
        )
    if file is None and asked is DecisionProtocol.LAYA:
        raise UsageError(
            f"{OPTION} {asked.value}: expected {LAYA_CONFIG} in {path}, found none; give a Laya "
            "checkpoint"
        )


def _either(protocols: tuple[DecisionProtocol, ...]) -> str:
    return " or ".join(protocol.value for protocol in protocols)
