"""`registry init`."""

import click

from infinity_v3.artifacts.registry.marker import create_registry
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.registry.output import print_result
from infinity_v3.compiler.registry.place import RegistryPlace, registry_write_options

POLICY = """\
# What a channel asks of an artifact before it may point to it. A channel without a section is
# refused, unless `promote --no-gates` is given, which the log records; so is the policy in force.
#
# Every section asks that all targets have passed parity with the reference model. It may ask more:
#
#   min-cosine = 0.9995              of every target, as build.json tells
#   max-abs = 1e-5
#   required-targets = ["cpu-x86_64-avx2-f32"]
#   require-signature = true
#   max-p50-slowdown = 1.05          against the artifact in the channel, measured side by side
#   min-throughput-ratio = 0.95
#   golden-requests = "golden.jsonl"
#   min-golden-agreement = 1.0
#   actors = ["0123456789abcdef"]    ids of signing keys

[channels.prod]
"""


@click.command()
@registry_write_options
@json_option
def init(place: RegistryPlace, is_json: bool) -> None:
    """Make an empty registry whose channel `prod` asks for passed parity."""
    storage = place.storage()
    create_registry(storage, POLICY)
    text = f"{storage.location}\n  channel prod asks for passed parity: see policy.toml there\n"
    print_result({"registry": storage.location}, text, is_json=is_json)
