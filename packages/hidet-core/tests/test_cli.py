"""The `hidet` command: its output for people, its JSON, and its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner, Result

import hidet
from hidet.cache import CacheKey, open_cache
from hidet.cli import main
from hidet.plugins import host
from hidet.plugins.specs import OWN_COMMANDS, CommandTable

PLUGIN = """
HIDET_API = 1
def hidet_commands(cli):
    cli.add("greet", load="greeting_plugin.commands:greet", doc="Say hello.")
    cli.add("broken", load="greeting_plugin.commands:number", doc="Not a command.")
"""
COMMANDS = """
import click
number = 3
@click.command()
@click.argument("name")
def greet(name):
    click.echo(f"hello {name}")
"""


@pytest.fixture(autouse=True)
def own_cache_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def greeting_plugin(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "greeting_plugin"
    package.mkdir()
    (package / "_plugin.py").write_text(PLUGIN)
    (package / "commands.py").write_text(COMMANDS)
    monkeypatch.setenv("HIDET_PLUGINS", "greeting_plugin._plugin")
    yield
    for name in [name for name in sys.modules if name.startswith("greeting_plugin")]:
        del sys.modules[name]
    host._load.cache_clear()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def run_json(*arguments: str) -> object:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_plugins_lists_the_built_ins() -> None:
    result = run("plugins")
    assert result.exit_code == 0
    assert "hidet-core" in result.stdout and "active" in result.stdout


def test_plugins_json_has_one_object_a_plugin(monkeypatch) -> None:
    monkeypatch.setenv("HIDET_PLUGINS", "no_such_package._plugin")
    core, missing = run_json("plugins")
    assert (core["plugin"], core["status"]) == ("core", "active")
    assert (missing["module"], missing["status"]) == ("no_such_package._plugin", "disabled")
    assert missing["problems"][0]["stage"] == "import"


def test_plugins_shows_problems_and_tracebacks_only_when_verbose(monkeypatch) -> None:
    monkeypatch.setenv("HIDET_PLUGINS", "no_such_package._plugin")
    brief, verbose = run("plugins").stdout, run("plugins", "-v").stdout
    assert "disabled at import: ModuleNotFoundError" in brief
    assert "Traceback" not in brief and "Traceback" in verbose


def test_plugins_verbose_names_every_spec(greeting_plugin) -> None:
    assert "commands:\n  greet, broken" in run("plugins", "--verbose").stdout


def test_a_plugin_command_runs_and_is_not_imported_for_help(greeting_plugin) -> None:
    assert "greet Say hello." in " ".join(run("--help").stdout.split())
    assert "greeting_plugin.commands" not in sys.modules
    assert run("greet", "world").stdout == "hello world\n"


def test_a_plugin_command_of_the_wrong_kind_is_named(greeting_plugin) -> None:
    result = run("broken")
    assert result.exit_code == 1
    assert "command 'broken': greeting_plugin.commands:number is 3, expected a click.Command" in result.output


def test_an_unknown_command_names_the_nearest() -> None:
    result = run("plugns")
    assert result.exit_code == 2
    assert "No such command 'plugns'; did you mean 'plugins'?" in result.output


def test_cache_status_counts_entries() -> None:
    open_cache().put(CacheKey.of(kernel="a"), b"code")
    shown = run_json("cache", "status")
    assert (shown["entries"], shown["problem"]) == (1, None)
    assert "entries    1" in run("cache", "status").stdout


def test_cache_clear_says_how_much_it_deleted() -> None:
    open_cache().put(CacheKey.of(kernel="a"), b"code")
    assert run("cache", "clear").stdout == "deleted 1 entry\n"
    assert run_json("cache", "clear")["deleted"] == 0


def test_cache_explain_shows_in_which_field_the_nearest_entry_differs() -> None:
    key = CacheKey.of(kernel="a", arch="avx2")
    open_cache().put(key, b"code")
    open_cache().put(CacheKey.of(kernel="a", arch="avx512"), b"code")
    assert "arch: 'avx2', there 'avx512'" in run("cache", "explain", key.digest[:12]).stdout
    shown = run_json("cache", "explain", key.digest)
    assert shown["differences"] == [{"name": "arch", "wanted": "avx2", "stored": "avx512"}]


def test_an_error_of_hidet_is_a_message_and_exit_code_1() -> None:
    result = run("cache", "explain", "123")
    assert result.exit_code == 1
    assert result.output.startswith("Error: no digest of an entry starts with")
    assert "Traceback" not in result.output


def test_hooks_without_entries_are_not_shown_as_observers(tmp_path: Path, monkeypatch) -> None:
    """plugin-friction.md bug 11: it said "4 passes, targets"."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "empty_handed").mkdir()
    source = "HIDET_API = 1\ndef hidet_targets(): return []\ndef hidet_kernel_built(name): pass\n"
    (tmp_path / "empty_handed" / "_plugin.py").write_text(source)
    monkeypatch.setenv("HIDET_PLUGINS", "empty_handed._plugin")
    (line,) = [line for line in run("plugins").stdout.splitlines() if line.startswith("empty_handed")]
    assert line.split()[-1] == "kernel_built"


def test_every_command_is_reserved_or_offered_by_the_hook_of_core() -> None:
    """plugin-friction.md bug 7: so that a plug-in's command of that name is refused instead of never reached."""
    offered = {name for (kind, name), owner in host.discover("").owners.items() if kind == "commands"}
    assert set(main.commands) == set(OWN_COMMANDS)
    assert {"compile", "run"} <= offered


def test_python_dash_m_is_the_command() -> None:
    """user-walk.md section 3."""
    done = subprocess.run([sys.executable, "-m", "hidet", "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("hidet, version")


def test_verbose_plugins_say_what_decides_between_schedules() -> None:
    """plugin-friction.md section 2: "who takes softmax on cpu, and why not mine?"."""
    lines = run("plugins", "-v").stdout.replace("\n  ", " ")
    assert "fallback (priority -1000, *; prologue gather, epilogue element-wise): *" in lines
    assert "cpu or llvm (kind cpu): This CPU, through LLVM" in lines


def test_schedules_of_hidet_leave_room_above_them() -> None:
    """plugin-friction.md section 2: priority 10 of the README's plug-in lost against a rule of the same."""
    registry = host.discover()
    own = [spec.priority for spec in registry.schedules.values() if not spec.is_foreign]
    assert max(own) < 100


def test_rules_for_an_operator_come_in_the_order_in_which_they_are_asked(monkeypatch) -> None:
    """user-walk.md section 2: "who takes softmax on cpu?"."""
    monkeypatch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin")
    rules = run_json("plugins", "--op", "softmax", "--target", "cpu")
    assert [(rule["rule"], rule["for"]) for rule in rules] == [("cpu.softmax", "family:softmax"), ("fallback", "*")]
    assert rules == run_json("plugins", "--op", "softmax")
    assert "cpu.softmax" in run("plugins", "--op", "softmax").stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("--op", "softmaxx"), 1, "did you mean 'softmax'"),
        (("--op", "softmax", "--target", "cpuu"), 1, "did you mean 'cpu'"),
        (("--target", "cpu"), 2, "--op softmax"),
    ],
)
def test_an_operator_or_target_that_nobody_has_is_told(
    arguments: tuple[str, ...], exit_code: int, said: str, monkeypatch
) -> None:
    monkeypatch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin")
    result = run("plugins", *arguments)
    assert result.exit_code == exit_code and said in result.stderr


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that is installed, those of groups by both names."""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            within = click.Context(command)
            for inner in command.list_commands(within):
                found = command.get_command(within, inner)
                assert found is not None
                yield f"{name} {inner}", found
        else:
            yield name, command


def test_every_command_that_tells_something_tells_it_as_json() -> None:
    """Those without print a script for a shell, the text of a graph, or lines of JSON as it is, or write a page."""
    without = {name for name, command in all_commands() if not any("--json" in each.opts for each in command.params)}
    assert without <= {"completion", "opt", "report", "tune export"}


def test_every_command_says_what_it_does_and_what_its_options_are() -> None:
    for name, command in all_commands():
        assert command.help, name
        assert all(each.help for each in command.params if isinstance(each, click.Option)), name


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (("plugins",), 0),
        (("cache", "explain", "00"), 1),
        (("verify", "no-such-file"), 2),
        (("plugins", "--no-such-option"), 2),
        (("no-such-command",), 2),
    ],
)
def test_exit_codes_are_0_for_right_1_for_what_is_wrong_and_2_for_what_cannot_be_asked(
    arguments: tuple[str, ...], exit_code: int
) -> None:
    result = run(*arguments)
    assert result.exit_code == exit_code
    assert exit_code == 0 or (not result.stdout and result.stderr)


class Clerk:
    """A wheel that adds a command to a group."""

    HIDET_API = 1

    def hidet_commands(self, cli: CommandTable) -> None:
        cli.add("cache.weigh", load="clerk:weigh", doc="Weigh it.")


def test_a_wheel_adds_a_command_to_a_group(monkeypatch) -> None:
    weigh = click.Command("weigh", callback=lambda: click.echo("heavy"))
    monkeypatch.setitem(sys.modules, "clerk", SimpleNamespace(weigh=weigh))
    with hidet.plugins.use(Clerk):
        assert run("cache", "weigh").stdout == "heavy\n"
        assert "Weigh it." in run("cache", "--help").stdout
        assert "weigh" not in run("--help").stdout
