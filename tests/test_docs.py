"""Python blocks and commands in the documentation run. A block that starts with `# path/name.py` is that file, others
run in order.

Those of the README run each on its own, as somebody pastes it.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import hidet
from hidet.cli import main
from hidet.operators import all_operators
from hidet.plugins.host import discover
from tests.models.onnx_models import silero_vad

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
STEP = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# ([\w/]+\.py)\n")
PLUGINS = {
    "index.md": "hidet.cpu._plugin,hidet.torch._plugin",
    "install.md": "hidet.cpu._plugin,hidet.report._plugin",
    "memory-model.md": "hidet.cpu._plugin,hidet.gpu._plugin,hidet.cuda._plugin",
    "mixed-precision.md": "hidet.cpu._plugin,hidet.torch._plugin,hidet.compat._plugin",
    "optimize-onnx-model.md": "hidet.cpu._plugin,hidet.onnx._plugin,hidet.report._plugin,hidet.torch._plugin",
    "numerics.md": "hidet.cpu._plugin,hidet.torch._plugin",
    "tensors.md": "hidet.cpu._plugin,hidet.torch._plugin,hidet.compat._plugin,hidet.report._plugin",
    "tile-kernels.md": "hidet.cpu._plugin,hidet.gpu._plugin,hidet.cuda._plugin",
    "seeing.md": "hidet.cpu._plugin,hidet.report._plugin,hidet.torch._plugin",
    "torch.md": "hidet.cpu._plugin,hidet.torch._plugin,hidet.compat._plugin",
    "tuning.md": "hidet.cpu._plugin,hidet.report._plugin,hidet.tuning._plugin",
}
"""What pages need besides the target of the host. Nothing of theirs runs on a device."""


ELSEWHERE = {"recipes.md", "stablehlo.md", "tensorflow.md"}
"""Pages that tests/test_recipes.py and the tests of their wheels run, where what they need is installed."""


@pytest.fixture(autouse=True)
def forgotten_traces() -> None:
    """As a reader's new process: torch traces no further than its limit what other tests have traced often."""
    if "torch" in sys.modules:
        sys.modules["torch"].compiler.reset()


@pytest.mark.parametrize(
    "page",
    sorted(path.name for path in DOCS.glob("*.md") if path.name not in ELSEWHERE and STEP.search(path.read_text())),
)
def test_examples_in_the_documentation_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HIDET_PLUGINS", f"{PLUGINS.get(page, 'hidet.cpu._plugin')},hidet.script_operator._plugin")
    monkeypatch.chdir(tmp_path)
    loaded = set(sys.modules)
    names: dict[str, object] = {"__name__": "example"}
    for language, block in STEP.findall((DOCS / page).read_text()):
        file_name = FILE_NAME.match(block)
        if language == "console":
            run_commands(block)
        elif file_name is None:
            exec(compile(block, page, "exec"), names)
        else:
            path = tmp_path / file_name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block)
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def run_commands(block: str) -> None:
    """What a page types of `hidet`, where its files are; into files of a user nothing is written."""
    for line in re.findall(r"^\$ hidet (.*)", block, re.MULTILINE):
        words = shlex.split(line.partition(">")[0])
        if "silero_vad.onnx" in words:
            shutil.copy(silero_vad(), "silero_vad.onnx")
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, f"hidet {line}: {result.output}"


def test_every_page_with_python_is_run() -> None:
    """Blocks called py need a GPU: `pytest -m gpu` runs them."""
    pages = [page for page in PAGES if page.is_relative_to(DOCS)]
    assert [page.name for page in pages if BLOCK.search(page.read_text()) and page.parent != DOCS] == []
    assert [page.name for page in pages if "```py\n" in page.read_text()] == ["cuda.md"]
    assert all((ROOT / place).exists() for place in ("tests/test_recipes.py", "packages/hidet-tensorflow/tests"))


COMMAND = re.compile(r"^(?:\$ |    )hidet ([^#|>`\n]*)", re.MULTILINE)


def commands_of(page: Path) -> list[list[str]]:
    """What a page shows of the `hidet` command, as words: after a prompt, in a block, or between backticks."""
    text = page.read_text()
    shown = [*COMMAND.findall(text), *re.findall(r"`hidet ([a-z][^`\n]*)`", text)]
    return [shlex.split(line.replace("…", "")) for line in shown if "'" not in line]


def options_of(words: list[str]) -> set[str]:
    """The options that a line may have; those of all commands of a group whose first word is no name of one. KeyError
    where there is no such command. Some lines name several commands, `hidet cache status|clear`."""
    command: click.Command | None = main.get_command(click.Context(main), words[0])
    if command is None:
        raise KeyError(words[0])
    found = [command]
    if isinstance(command, click.Group):
        context = click.Context(command)
        inner = {name: command.get_command(context, name) for name in command.list_commands(context)}
        named = words[1].partition("|")[0] if len(words) > 1 else ""
        found += [each for name, each in inner.items() if each is not None and (named not in inner or name == named)]
    return {name for each in found for given in each.params for name in (*given.opts, *given.secondary_opts)}


def test_commands_on_pages_are_there_with_their_options() -> None:
    unknown = []
    for page in PAGES:
        for words in commands_of(page):
            given = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}
            if words and not words[0].startswith("-"):
                unknown += [f"{page.name}: hidet {words[0]} {each}" for each in given - options_of(words) - {"--help"}]
    assert not unknown


def test_the_page_of_environment_variables_has_all_that_sources_read() -> None:
    text = "".join(path.read_text() for path in ROOT.glob("packages/*/src/**/*.py"))
    read = set(re.findall(r"""environ(?:\.get\(|\.setdefault\(|\[)\s*["'](HIDET_\w+)""", text))
    assert len(read) > 8
    assert set(re.findall(r"^\| `(HIDET_\w+)`", (DOCS / "environment.md").read_text(), re.MULTILINE)) == read


README_BLOCKS = BLOCK.findall((ROOT / "README.md").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("number", [n for n, block in enumerate(README_BLOCKS) if not FILE_NAME.match(block)])
def test_a_block_of_the_readme_runs_as_it_is_pasted(number: int, tmp_path: Path) -> None:
    """user-walk.md section 1: two of them ended in NameError."""
    (tmp_path / "pasted.py").write_text(README_BLOCKS[number])
    command = [sys.executable, "pasted.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()


def test_the_plugin_of_the_readme_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in README_BLOCKS if FILE_NAME.match(block)]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "_plugin.py").write_text(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        registry = discover("hidet.cpu._plugin,my_package._plugin")
    finally:
        for name in [name for name in sys.modules if name.startswith("my_package")]:
            del sys.modules[name]
    assert not [problem for record in registry.plugins for problem in record.problems]
    assert registry.schedules_for("matmul", "cpu")[0].name == "mine.matmul"


def test_the_families_of_the_documentation_are_those_of_core() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+ \| ([\w, ]+) \|$", (DOCS / "schedules.md").read_text(), re.MULTILINE)
    families: dict[str, set[str]] = {}
    for spec in all_operators():
        if spec.family is not None:
            families.setdefault(spec.family, set()).add(spec.name)
    assert {family: set(names.split(", ")) for family, names in rows} == families


def test_the_readme_begins_with_how_to_install() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.index("pip install hidet-torch") < readme.index("nox -s")


@pytest.mark.parametrize("changelog", sorted(ROOT.glob("packages/*/CHANGELOG.md")), ids=lambda path: path.parent.name)
def test_a_changelog_says_nothing_twice(changelog: Path) -> None:
    """user-walk.md section 1: entries stood there two and three times, some with another end."""
    entries = [" ".join(entry.split()) for entry in re.split(r"\n(?=- )", changelog.read_text())[1:]]
    beginnings = [entry[:55] for entry in entries]
    assert not [entry for entry in entries if beginnings.count(entry[:55]) > 1]


def test_everything_that_runs_a_saved_model_says_that_it_is_native_code(capsys: pytest.CaptureFixture[str]) -> None:
    """red-team.md finding 5: it stood in a private module alone."""
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    shown = {
        "hidet run --help": capsys.readouterr().out,
        "hidet.load": hidet.load.__doc__,
        "README.md": (ROOT / "README.md").read_text(),
        "packages/hidet-core/README.md": (ROOT / "packages/hidet-core/README.md").read_text(),
    }
    for where, text in shown.items():
        assert re.search(r"native code\b.*\bonly what\s+you trust", text, re.DOTALL | re.IGNORECASE), where
    assert (DOCS / "security.md").exists()


def test_a_saved_model_needs_the_wheel_of_its_target() -> None:
    """user-walk.md bug 8: the page said that no compiler has to be installed."""
    page = (DOCS / "optimize-onnx-model.md").read_text()
    assert re.search(r"hidet-core and hidet-cpu are installed, such a file runs", page)


GENERATED = {"_build", "gallery", "reference"}
PAGES = [
    *sorted(page for page in DOCS.glob("**/*.md") if page.relative_to(DOCS).parts[0] not in GENERATED),
    ROOT / "README.md",
    ROOT / "DEVELOPING.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_files_that_exist(page: Path) -> None:
    paths = set(re.findall(r"`(hidet/[\w/.]+)`", page.read_text()))
    assert not [path for path in sorted(paths) if not any(ROOT.glob(f"packages/*/src/{path.rstrip('/')}"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\[[^\]\n]+\]\((?!http)([\w./-]*(?:#[\w-]+)?)\)", page.read_text()):
        if GENERATED & {*Path(target).parts[:1]}:
            continue  # `nox -s docs` follows these.
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name}: {target}"
        headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE) if anchor else []
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in slugs, f"{page.name}: {target}"
