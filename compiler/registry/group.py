"""`infinity-compile registry`: its commands. Knows nothing of what they do."""

import click

from infinity_v3.compiler.command_group import CommandGroup
from infinity_v3.compiler.registry.init import init
from infinity_v3.compiler.registry.listing import list_names
from infinity_v3.compiler.registry.log import log
from infinity_v3.compiler.registry.pull import pull
from infinity_v3.compiler.registry.push import push


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def registry(ctx: click.Context) -> None:
    """Keep artifacts in a directory or an object store, with versions, channels and a log."""
    if ctx.invoked_subcommand is None:
        ctx.fail(f"expected a command: {', '.join(registry.list_commands(ctx))}")


registry.add_command(init)
registry.add_command(list_names)
registry.add_command(log)
registry.add_command(pull)
registry.add_command(push)
