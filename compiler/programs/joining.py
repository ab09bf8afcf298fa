"""Puts targets of several builds into one order and one provenance. Knows no file."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

from infinity_v3.artifacts.cpu_class import CPU_CLASSES
from infinity_v3.artifacts.manifest import Provenance, Target

_VERSIONS = tuple(field.name for field in fields(Provenance) if field.name != "flags")


def in_order(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Targets as a compile lists them: in the order of preference, unknown ones by name behind."""
    places = {cpu.name: place for place, cpu in enumerate(CPU_CLASSES)}
    return tuple(sorted(targets, key=lambda t: (places.get(t.name, len(places)), t.name)))


def joined_provenance(
    base: Provenance, others: Sequence[tuple[Provenance, frozenset[str]]], order: Sequence[str]
) -> Provenance:
    """One provenance for targets that were built apart.

    It states the versions of `base`; behind the flags of a target that was built by others stands
    what differed.

    Args:
        base: of the artifact whose versions are stated.
        others: provenances, each with the names of the targets that are taken from it.
        order: every target, in the order of the flags.
    """
    flags = {_target_of(flag): flag for flag in base.flags}
    for provenance, names in others:
        differing = [
            f"{key}={_one_word(str(getattr(provenance, key)))}"
            for key in _VERSIONS
            if getattr(provenance, key) != getattr(base, key)
        ]
        for flag in provenance.flags:
            if _target_of(flag) in names:
                flags[_target_of(flag)] = " ".join([flag, *differing])
    return replace(base, flags=tuple(flags[name] for name in order if name in flags))


def _target_of(flag: str) -> str:
    return flag.partition(":")[0]


def _one_word(text: str) -> str:
    return re.sub(r"\s+", "_", text)
