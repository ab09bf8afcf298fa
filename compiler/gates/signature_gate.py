"""Signatures: of the candidate, and of the promotion itself. Knows nothing of keys' files."""

from collections.abc import Iterator
from dataclasses import dataclass

from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.artifacts.registry.signing import SignatureVerifier, version_message
from infinity_v3.artifacts.registry.version_signatures import Signatures, trusted_key
from infinity_v3.compiler.gates.promotion import Promotion, Side

REQUIRE_SIGNATURE = "require-signature"
BOUND = "signed by a trusted key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Who is trusted, and what was signed.

    Attributes:
        candidate, current: signatures of the versions, by key id.
    """

    verifier: SignatureVerifier
    candidate: Signatures
    current: Signatures


def signature_figures(promotion: Promotion, trust: Trust | None) -> Iterator[GateFigure]:
    """A figure for the version and one for the promotion, where the policy asks for signatures."""
    if trust is None:
        return
    candidate, current = promotion.candidate, promotion.current
    signed_by = _trusted(candidate, trust.candidate, trust.verifier)
    yield GateFigure(
        gate=REQUIRE_SIGNATURE,
        subject=f"version {candidate.version}",
        current=None if current is None else _word(current, trust.current, trust.verifier),
        candidate=_word(candidate, trust.candidate, trust.verifier),
        bound=BOUND,
        passed=signed_by is not None,
        detail="" if signed_by else _remedy(candidate, trust),
    )
    is_trusted = promotion.actor in trust.verifier.key_ids
    yield GateFigure(
        gate=REQUIRE_SIGNATURE,
        subject="this promotion",
        current=None,
        candidate=promotion.actor,
        bound=BOUND,
        passed=is_trusted,
        detail="" if is_trusted else f"promote with --sign-key FILE of {_ids(trust.verifier)}",
    )


def _trusted(side: Side, signatures: Signatures, verifier: SignatureVerifier) -> str | None:
    return trusted_key(signatures, version_message(side.name, side.version, side.id), verifier)


def _word(side: Side, signatures: Signatures, verifier: SignatureVerifier) -> str:
    trusted = _trusted(side, signatures, verifier)
    if trusted is not None:
        return trusted
    return "no valid signature" if signatures else "unsigned"


def _remedy(candidate: Side, trust: Trust) -> str:
    found = ", ".join(sorted(trust.candidate)) or "none"
    return (
        f"signatures found: {found}; `infinity-compile registry sign "
        f"{candidate.name}=={candidate.version}` with the key {_ids(trust.verifier)}"
    )


def _ids(verifier: SignatureVerifier) -> str:
    return " or ".join(verifier.key_ids)
