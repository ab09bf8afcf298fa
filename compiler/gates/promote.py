"""Moves a channel to a version, if the channel's gates pass. Prints nothing."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from infinity_v3.artifacts.layout import BUILD_FILE
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.channels import ChannelState
from infinity_v3.artifacts.registry.event_signature import is_signed_by
from infinity_v3.artifacts.registry.moves import ChannelMove
from infinity_v3.artifacts.registry.pull import pull_bytes
from infinity_v3.artifacts.registry.pull_cache import pull_into_cache
from infinity_v3.artifacts.registry.records import EventKind, GateFigure
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.registry.signing import Signer
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.artifacts.typed_json import JsonObject, Location, check_object, parse
from infinity_v3.compiler.gates.gates import GateInputs, run_gates
from infinity_v3.compiler.gates.policy import ChannelPolicy, read_policy
from infinity_v3.compiler.gates.policy_files import GoldenFile, read_golden_file
from infinity_v3.compiler.gates.policy_keys import read_trusted_keys
from infinity_v3.compiler.gates.promotion import Fetch, Promotion, Side
from infinity_v3.compiler.gates.signature_gate import Trust
from infinity_v3.compiler.gates.table import PromotionReport
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.registry.keys import check_key_given

GOLDEN_NOTE = "golden-requests"
"""Key of a promotion's notes: sha256 of the golden requests that were used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteOrder:
    """What the command line of `promote` said.

    Attributes:
        source: the candidate.
        actor: `unverified:<user>`; a signer's own id replaces it.
        key_files: public keys, where the policy leaves it to the command line who is trusted.
        cache: directory that artifacts are pulled into when they have to be run.
    """

    source: Reference
    channel: str
    actor: str
    signer: Signer | None
    key_files: tuple[Path, ...]
    cache: Path
    is_dry_run: bool
    is_ungated: bool


def promote(registry: Registry, order: PromoteOrder, progress: Progress) -> PromotionReport:
    """Ask the gates and move the channel, unless one fails or nothing is to be moved.

    Returns:
        What was found; `event` is the promotion's, None where the channel was not moved.

    Raises:
        RefusedError: no such candidate, no section for the channel, a malformed policy, a place
            that cannot keep two writers apart, the channel was moved while the gates ran, or its
            last move is signed and no key was given.
        RunFailedError: the registry cannot be read or written.
    """
    name, channel = order.source.name, order.channel
    candidate = registry.resolve(order.source)
    before = registry.channel(name, channel)
    current = None
    if before.event is not None:
        current = registry.resolve(Reference(name=name, version=before.event.version))
    is_settled = _is_settled(order.signer, candidate, before)
    if not (order.is_dry_run or is_settled):
        check_key_given(before, order.signer)
    policy_bytes = registry.storage.read(paths.POLICY)
    sides = (candidate, current)
    report = _judge(registry, order, sides, policy_bytes, progress, is_settled=is_settled)
    if is_settled and before.is_interrupted and not order.is_dry_run:
        registry.mend_channel(name, channel)
    if report.failed or order.is_dry_run or is_settled:
        return report
    event = registry.move_channel(
        ChannelMove(
            name=name,
            channel=channel,
            version=candidate.version,
            id=candidate.id,
            kind=EventKind.PROMOTE,
            actor=report.actor,
            policy=None if policy_bytes is None else registry.store_document(policy_bytes),
            figures=report.figures,
            is_ungated=order.is_ungated,
            notes={} if report.golden is None else {GOLDEN_NOTE: report.golden},
            signer=order.signer,
            against=before,
        )
    )
    return replace(report, event=event.seq)


def _is_settled(signer: Signer | None, candidate: Resolved, before: ChannelState) -> bool:
    """Tell whether the channel's last move says all that the promotion would say."""
    event = before.event
    if event is None or (event.version, event.id) != (candidate.version, candidate.id):
        return False
    return signer is None or is_signed_by(event, signer)


def _judge(
    registry: Registry,
    order: PromoteOrder,
    sides: tuple[Resolved, Resolved | None],
    policy_bytes: bytes | None,
    progress: Progress,
    *,
    is_settled: bool,
) -> PromotionReport:
    """Ask the gates, where there is something to decide."""
    candidate, current = sides
    promotion = Promotion(
        channel=order.channel,
        policy=_policy(order, policy_bytes),
        candidate=_side(registry, candidate),
        current=None if current is None else _side(registry, current),
        actor=order.actor if order.signer is None else order.signer.key_id,
    )
    is_asked = not order.is_ungated and (order.is_dry_run or not is_settled)
    golden = _golden(registry, promotion) if is_asked else None
    figures: tuple[GateFigure, ...] = ()
    if is_asked:
        inputs = GateInputs(
            trust=_trust(registry, order, promotion),
            golden=golden,
            fetch=_fetcher(registry, sides, order.cache, progress),
        )
        figures = run_gates(promotion, inputs, progress)
    return PromotionReport(
        channel=order.channel,
        candidate=promotion.candidate,
        current=promotion.current,
        actor=promotion.actor,
        policy=None if policy_bytes is None else hashlib.sha256(policy_bytes).hexdigest(),
        golden=None if golden is None else golden.sha256,
        figures=figures,
        is_ungated=order.is_ungated,
        is_dry_run=order.is_dry_run,
    )


def _policy(order: PromoteOrder, policy_bytes: bytes | None) -> ChannelPolicy:
    return ChannelPolicy() if order.is_ungated else read_policy(policy_bytes).of(order.channel)


def _side(registry: Registry, resolved: Resolved) -> Side:
    return Side(
        name=resolved.name,
        version=resolved.version,
        id=resolved.id,
        manifest=registry.manifest(resolved.id),
        build=_build(registry, resolved),
    )


def _build(registry: Registry, resolved: Resolved) -> JsonObject | None:
    if resolved.record.build is None:
        return None
    at = Location(f"{resolved.name}=={resolved.version}: {BUILD_FILE}")
    return check_object(parse(registry.document(resolved.record.build), at), at)


def _golden(registry: Registry, promotion: Promotion) -> GoldenFile | None:
    path = promotion.policy.golden_requests
    if path is None:
        return None
    return read_golden_file(registry.storage, path, promotion.candidate.name)


def _trust(registry: Registry, order: PromoteOrder, promotion: Promotion) -> Trust | None:
    rule, current = promotion.policy.require_signature, promotion.current
    if not rule.is_required:
        return None
    name = promotion.candidate.name
    return Trust(
        verifier=read_trusted_keys(registry.storage, rule, order.key_files, promotion.channel),
        candidate=registry.signatures(name, promotion.candidate.version),
        current={} if current is None else registry.signatures(name, current.version),
    )


def _fetcher(
    registry: Registry,
    sides: tuple[Resolved, Resolved | None],
    cache: Path,
    progress: Progress,
) -> Fetch:
    by_version = {resolved.version: resolved for resolved in sides if resolved is not None}

    def fetch(side: Side) -> Artifact:
        with progress.stage(f"pull {side.version}", pull_bytes(side.manifest)) as stage:
            resolved = by_version[side.version]
            path = pull_into_cache(registry, resolved, cache, advance=stage.advance)
        return open_artifact(path)

    return fetch
