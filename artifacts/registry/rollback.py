"""Where a channel goes back to, from its log alone. Moves nothing."""

from collections.abc import Iterable

from infinity_v3.artifacts.registry.records import Event, EventKind

Place = tuple[str, str]
"""Version and artifact id."""


def places_before(events: Iterable[Event], channel: str) -> tuple[Place, ...]:
    """What a channel pointed to before, the nearest last; what it points to now is left out.

    A promotion adds a place, a rollback takes places away down to the one it went to. Going back
    again therefore goes further back, and a promotion after it starts from there.
    """
    stack: list[Place] = []
    for event in events:
        if event.channel != channel:
            continue
        place = (event.version, event.id)
        if event.kind is EventKind.ROLLBACK and place in stack:
            while stack[-1] != place:
                stack.pop()
        elif not stack or stack[-1] != place:
            stack.append(place)
    return tuple(stack[:-1])
