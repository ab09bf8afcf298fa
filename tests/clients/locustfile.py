"""The user of test_locust: asks for every shape so many times, then the run is over."""

import itertools
import os
import random

import gevent
from locust import HttpUser, task
from locust.exception import StopUser

SHAPES = {
    "1x32": [32],
    "1x128": [128],
    "8x128": [128] * 8,
    "32x128": [128] * 32,
    "32x32..256": [32 + 7 * place for place in range(32)],
    "8x512": [512] * 8,
    "32x512": [512] * 32,
}
"""Words of each text; some make the inputs that the server cuts."""
TEXT = "the quick brown fox jumps over a lazy dog while rain falls on old stone walls"
NUM_USERS = int(os.environ["NUM_USERS"])
NUM_ROUNDS = int(os.environ["NUM_ROUNDS"])

_numbers = itertools.count()
_ended = itertools.count(1)


class Caller(HttpUser):  # type: ignore[misc]  # untyped where locust is not installed
    """Asks for embeddings without a pause; every user begins at another shape."""

    def on_start(self) -> None:
        """Take a number."""
        number = next(_numbers)
        self.random = random.Random(number)
        names = list(SHAPES)
        self.waiting = [names[(number + place) % len(names)] for place in range(len(names))]
        self.waiting *= NUM_ROUNDS

    @task  # type: ignore[untyped-decorator]  # as above
    def embed(self) -> None:
        """One request; too much at once is an answer, too."""
        if not self.waiting:
            if next(_ended) == NUM_USERS:
                # Not here: it waits for every user to end, and this is one.
                gevent.spawn(self.environment.runner.quit)
            raise StopUser
        name = self.waiting.pop()
        lengths = SHAPES[name]
        texts = [" ".join(self.random.choices(TEXT.split(), k=length)) for length in lengths]
        body = {"model": "any", "input": texts}
        with self.client.post("/v1/embeddings", json=body, name=name, catch_response=True) as reply:
            if reply.status_code == 429:
                reply.success()
            elif reply.ok and len(reply.json()["data"]) != len(texts):
                reply.failure("another number of vectors")
