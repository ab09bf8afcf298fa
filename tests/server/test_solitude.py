"""Who counts as the only client of a server."""

import asyncio

from infinity_v3.server.solitude import Solitude


class Line:
    """Requests under way, as the server counts them."""

    def __init__(self) -> None:
        self.num_admitted = 0
        self.solitude = Solitude(lambda: self.num_admitted)

    def begin(self) -> bool:
        self.num_admitted += 1
        return self.solitude.is_alone

    def end(self) -> None:
        self.num_admitted -= 1
        self.solitude.ended()

    async def serve(self) -> bool:
        """One request; tells whether it is alone."""
        is_alone = self.begin()
        self.end()
        await asyncio.sleep(0.001)
        return is_alone


def test_one_after_the_other() -> None:
    async def scenario() -> list[bool]:
        line = Line()
        return [await line.serve() for _ in range(3)]

    assert asyncio.run(scenario()) == [True, True, True]


def test_two_at_a_time_are_not_alone_and_the_next_one_is_believed_to_be_one_of_them() -> None:
    async def scenario() -> list[bool]:
        line = Line()
        found = [line.begin(), line.begin()]
        line.end()
        found.append(line.begin())
        line.end()
        line.end()
        found.append(line.begin())  # at once: nobody has looked yet
        line.end()
        await asyncio.sleep(0.001)
        return [*found, await line.serve()]

    assert asyncio.run(scenario()) == [True, False, False, False, True]


def test_who_comes_while_the_loop_stands_still_is_seen() -> None:
    """As the transport does it: a callback from its thread makes the task that is admitted."""

    async def scenario() -> list[bool]:
        line = Line()
        loop = asyncio.get_running_loop()
        found: list[bool] = []

        async def other() -> None:
            line.begin()
            await asyncio.sleep(0.01)
            found.append(line.solitude.is_alone)
            line.end()

        async def first() -> None:
            found.append(line.begin())
            # Here the loop stands still.
            loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(other())))
            line.end()

        tasks: list[asyncio.Task[None]] = []
        await loop.create_task(first())
        await asyncio.sleep(0.05)
        assert all(task.done() for task in tasks)
        return [*found, await line.serve()]

    assert asyncio.run(scenario()) == [True, False, True]
