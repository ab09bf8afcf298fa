"""How long an input and a batch may be, decided once at start-up.

Knows nothing of engines or tokenizers.
"""

from dataclasses import dataclass

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.layout import PROFILE_FILE
from infinity_v3.artifacts.manifest import Manifest, Target
from infinity_v3.artifacts.profile import TargetProfile

DEFAULT_MAX_BATCH_TOKENS = 16384
MIN_FILL_TOKENS = 64
"""Nothing smaller is measured, and batches of less would be slow."""
DEFAULT_FILL_TOKENS = 4096
"""Batches on CPU gain nothing beyond this, and whoever comes next would wait longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSettings:
    """What the user asked for; None = the default.

    Attributes:
        max_batch_tokens: hard ceiling of one batch.
        max_sequence_length: cap per input.
        is_truncating: too long inputs are cut unless a request says otherwise.
    """

    max_batch_tokens: int | None = None
    max_sequence_length: int | None = None
    is_truncating: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizes:
    """The sizes in force, and a sentence for each default that had to give way.

    Attributes:
        length_option: the option that decides the longest input; None = the artifact or the target.
    """

    max_input_tokens: int
    max_batch_tokens: int
    fill_tokens: int
    notes: tuple[str, ...]
    length_option: str | None = None


def resolve_sizes(
    manifest: Manifest, target: Target, settings: SizeSettings, measured: TargetProfile
) -> BatchSizes:
    """Fit the wishes to what the model and the target can do.

    Args:
        manifest: of the artifact.
        target: the one to load.
        settings: the wishes.
        measured: what was measured for the target; gives what batches are filled to.

    Raises:
        UsageError: an explicit value is impossible, or the batch budget would shorten inputs that
            must not be cut.
    """
    notes: list[str] = []
    stored = min(manifest.tokenizer.length.max_tokens, manifest.model.max_input_tokens)
    max_batch_tokens = _resolve_batch_tokens(target, settings, notes)
    _check_sequence_length(settings.max_sequence_length, stored, max_batch_tokens)
    wanted = settings.max_sequence_length or stored
    if max_batch_tokens < wanted:
        notes.append(_shorten(wanted, max_batch_tokens, settings))
    longest = min(wanted, max_batch_tokens)
    fill_tokens = _take_fill_tokens(measured, target, longest, notes)
    return BatchSizes(
        max_input_tokens=longest,
        max_batch_tokens=max_batch_tokens,
        fill_tokens=min(fill_tokens, max_batch_tokens),
        notes=tuple(notes),
        length_option=_length_option(settings, wanted, max_batch_tokens),
    )


def check_least_length(sizes: BatchSizes, least: int) -> None:
    """Refuse a longest input that leaves no room for text: all vectors would be the same.

    Args:
        sizes: in force.
        least: tokens that every input has, and one more.

    Raises:
        UsageError: an option made it too short.
    """
    if sizes.length_option is not None and sizes.max_input_tokens < least:
        raise UsageError(
            f"{sizes.length_option} {sizes.max_input_tokens}: expected at least {least}, the "
            f"{least - 1} tokens that every input needs beside its text, and one of the text"
        )


def _length_option(settings: SizeSettings, wanted: int, max_batch_tokens: int) -> str | None:
    if settings.max_batch_tokens is not None and max_batch_tokens < wanted:
        return "--max-batch-tokens"
    return None if settings.max_sequence_length is None else "--max-sequence-length"


def _resolve_batch_tokens(target: Target, settings: SizeSettings, notes: list[str]) -> int:
    limit = target.limits.max_tokens
    wanted = settings.max_batch_tokens
    if wanted is None:
        if limit < DEFAULT_MAX_BATCH_TOKENS:
            notes.append(
                f"--max-batch-tokens: default {DEFAULT_MAX_BATCH_TOKENS} lowered to {limit}, "
                f"the limit that target {target.name} was compiled for"
            )
        return min(DEFAULT_MAX_BATCH_TOKENS, limit)
    if not 1 <= wanted <= limit:
        raise UsageError(
            f"--max-batch-tokens {wanted}: expected at most {limit}, "
            f"what target {target.name} was compiled for"
        )
    return wanted


def _take_fill_tokens(
    measured: TargetProfile, target: Target, longest: int, notes: list[str]
) -> int:
    """Take what was measured only where it is sensible: no id and no signature covers it."""
    least, most = min(MIN_FILL_TOKENS, longest), target.limits.max_tokens
    fill_tokens = measured.fill_tokens
    if fill_tokens is None:
        return DEFAULT_FILL_TOKENS
    if not least <= fill_tokens <= most:
        notes.append(
            f"batches are filled to the default of {DEFAULT_FILL_TOKENS} tokens, as the "
            f"{fill_tokens} of {PROFILE_FILE} are not between {least} and {most}"
        )
        return DEFAULT_FILL_TOKENS
    return fill_tokens


def _check_sequence_length(wanted: int | None, stored: int, max_batch_tokens: int) -> None:
    if wanted is None:
        return
    if not 1 <= wanted <= stored:
        raise UsageError(
            f"--max-sequence-length {wanted}: expected at most {stored}, the artifact's own limit"
        )
    if wanted > max_batch_tokens:
        raise UsageError(
            f"--max-sequence-length {wanted}: a batch holds only {max_batch_tokens} tokens; "
            "lower it or raise --max-batch-tokens"
        )


def _shorten(wanted: int, max_batch_tokens: int, settings: SizeSettings) -> str:
    if not settings.is_truncating:
        raise UsageError(
            f"--max-batch-tokens {max_batch_tokens}: inputs of up to {wanted} tokens would fit no "
            "batch and --auto-truncate is off; raise it or set --max-sequence-length"
        )
    return (
        f"longest input lowered from {wanted} to {max_batch_tokens} tokens, the size of one batch "
        "(--max-batch-tokens); longer inputs are cut"
    )
