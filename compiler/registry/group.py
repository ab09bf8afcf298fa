"""`infinity-compile registry`: its commands. Knows nothing of what they do."""

import click

from infinity_v3.compiler.command_group import CommandGroup
from infinity_v3.compiler.registry.diff import diff
from infinity_v3.compiler.registry.fsck import fsck
from infinity_v3.compiler.registry.gc import gc
from infinity_v3.compiler.registry.init import init
from infinity_v3.compiler.registry.listing import list_names
from infinity_v3.compiler.registry.log import log
from infinity_v3.compiler.registry.oci_commands import export_command, import_command
from infinity_v3.compiler.registry.pull import pull
from infinity_v3.compiler.registry.push import push
from infinity_v3.compiler.registry.retire import retire
from infinity_v3.compiler.registry.rollback import rollback
from infinity_v3.compiler.registry.show import show
from infinity_v3.compiler.registry.signatures import sign, verify


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
registry.add_command(diff)
registry.add_command(export_command)
registry.add_command(fsck)
registry.add_command(gc)
registry.add_command(import_command)
registry.add_command(retire)
registry.add_command(rollback)
registry.add_command(show)
registry.add_command(sign)
registry.add_command(verify)
