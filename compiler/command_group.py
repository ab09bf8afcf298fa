"""What groups of commands have in common on a command line. Knows no command."""

from collections.abc import Callable

import click

from infinity_v3.artifacts.spelling import nearest

_Command = Callable[..., None]


class CommandGroup(click.Group):
    """A group whose unknown command names the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of `args`, or fail with the nearest name."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            ctx.fail(
                f"no such command: {args[0]}{nearest(args[0], known)}; commands: {', '.join(known)}"
            )
        return super().resolve_command(ctx, args)


def json_option(command: _Command) -> _Command:
    """Give a command `--json`."""
    help_text = "Print one JSON document on stdout, for programs, and no progress."
    return click.option("--json", "is_json", is_flag=True, help=help_text)(command)
