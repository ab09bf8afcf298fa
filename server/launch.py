"""Brings the process up to the point where the server runs: environment, logging, ports.

Knows nothing of routes or flags.
"""

import os
import time

from infinity_v3.artifacts.openmp_variables import settle_openmp_variables
from infinity_v3.server.config import Configuration
from infinity_v3.server.config_report import changed_lines
from infinity_v3.server.logs import set_up_logging
from infinity_v3.server.process import seconds_since_process_start
from infinity_v3.server.sockets import bind_listeners, is_reachable_from_outside


def serve(configuration: Configuration) -> int:
    """Serve until told to stop.

    Returns:
        The exit code: 0 drained, 1 the drain time was over.

    Raises:
        InfinityError: the server could not start.
    """
    settle_openmp_variables(os.environ)
    config_s = seconds_since_process_start()
    config = configuration.serve
    logger = set_up_logging(config.log_level, is_json=config.json_output)
    for warning in configuration.warnings:
        logger.warning("%s", warning)
    for line in changed_lines(configuration):
        logger.info("%s", line)
    begun_s = time.perf_counter()
    listeners = bind_listeners(configuration)
    for warning in listeners.warnings:
        logger.warning("%s", warning)
    if config.api_key is None and is_reachable_from_outside(listeners.main):
        logger.warning(
            "no API key: anyone who reaches this port can use it; set --api-key, or listen on a "
            "loopback address"
        )
    bind_s = time.perf_counter() - begun_s

    # Now, and not above: a taken port is reported before the libraries are loaded.
    import uvloop

    from infinity_v3.server.server import Server

    server = Server(configuration, listeners, {"config": config_s, "bind": bind_s})
    return uvloop.run(server.run())
