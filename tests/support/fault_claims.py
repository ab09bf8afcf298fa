"""What a fault scenario claims and what it measured. Knows nothing of servers."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence that must be true, and what was found."""

    text: str
    found: str
    holds: bool


@dataclass(slots=True, kw_only=True)
class Scenario:
    """One kind of load or fault with its claims."""

    name: str
    what: str
    claims: list[Claim] = field(default_factory=list)
    seconds: float = 0.0

    def claim(self, text: str, holds: bool, found: object = "") -> None:
        """Record a claim; nothing is raised, so that the rest of a run still tells its story."""
        self.claims.append(Claim(text=text, found=str(found), holds=bool(holds)))

    def claim_equal(self, text: str, found: object, expected: object) -> None:
        self.claim(
            text, found == expected, f"{found}" if found == expected else f"{found}, not {expected}"
        )

    def claim_below(self, text: str, found: float, limit: float, unit: str) -> None:
        self.claim(text, found < limit, f"{found:.3g} {unit}, limit {limit:.3g}")

    @property
    def failures(self) -> list[str]:
        return [f"{self.name}: {c.text} ({c.found})" for c in self.claims if not c.holds]

    @contextmanager
    def running(self, say: Callable[[str], None]) -> Iterator["Scenario"]:
        """Time the block; an exception becomes a claim that does not hold."""
        say(f"{self.name} ...")
        begun_s = time.monotonic()
        try:
            yield self
        except (OSError, AssertionError, RuntimeError, ValueError, LookupError) as error:
            self.claim(
                "the scenario runs to its end", False, f"{type(error).__name__}: {error}"[:1500]
            )
        self.seconds = time.monotonic() - begun_s
        verdict = "FAILED" if self.failures else "ok"
        say(f"{self.name}: {verdict}, {len(self.claims)} claims in {self.seconds:.1f} s")
