"""A server on the loopback interface that speaks S3, in this process."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

BUCKET = "registries"
SECRET = "secret-of-the-tests"


@contextmanager
def s3_server() -> Iterator[str]:
    """Start a server with an empty bucket, and name it in the environment as users do.

    Yields:
        The URL of the bucket.
    """
    # Loaded by the tests that need it: it takes a second.
    import fsspec
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environ = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with mock.patch.dict(os.environ, environ):
        fsspec.filesystem("s3").mkdir(BUCKET)
        yield f"s3://{BUCKET}"
    server.stop()
