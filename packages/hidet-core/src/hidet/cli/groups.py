"""Groups of commands that plug-ins add to."""

from __future__ import annotations

from collections.abc import Mapping

import click

from hidet.errors import HidetError
from hidet.plugins.specs import CommandSpec
from hidet.plugins.wheels import command_hint


class PluginGroup(click.Group):
    """Built-in commands first, then those of plug-ins; hidet's errors become messages instead of tracebacks.

    prefix: of the names of commands that plug-ins add to this group: "cache.log" is `hidet cache log`.
    """

    prefix = ""

    def _offered(self) -> Mapping[str, CommandSpec]:
        from hidet.plugins.host import load_registry

        named = {
            name.removeprefix(self.prefix): spec
            for name, spec in load_registry().commands.items()
            if name.startswith(self.prefix)
        }
        return {name: spec for name, spec in named.items() if "." not in name}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._offered()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        spec = self._offered().get(cmd_name)
        if spec is None:
            ctx.fail(f"No such command {cmd_name!r}; {command_hint(self.prefix + cmd_name, self.list_commands(ctx))}")
        found = spec.resolve()
        if not isinstance(found, click.Command):
            raise click.ClickException(f"command {cmd_name!r}: {spec.load} is {found!r}, expected a click.Command")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`: the line of a plug-in's command comes from its spec, so that none is imported."""
        rows = [(name, command.get_short_help_str(limit=80)) for name, command in self.commands.items()]
        rows += [(name, spec.doc) for name, spec in self._offered().items() if name not in self.commands]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HidetError as error:
            raise click.ClickException(str(error)) from error
