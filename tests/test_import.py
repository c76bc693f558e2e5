"""What importing hidet loads. Each test runs in a fresh process, because this one has loaded everything already."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("numpy", "torch", "llvmlite", "pluggy", "importlib_metadata", "click", "rich", "ml_dtypes", "sympy")


def modules_after(code: str) -> set[str]:
    program = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(finished.stdout.splitlines()[-1]))


def output_of(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_hidet_loads_nothing_else_of_hidet_and_nothing_heavy() -> None:
    loaded = modules_after("import hidet")
    assert {name for name in loaded if name.startswith("hidet")} == {"hidet"}
    assert not loaded & set(HEAVY)


def test_loading_the_plugins_loads_no_framework() -> None:
    loaded = modules_after("from hidet.plugins.host import load_registry; load_registry()")
    assert not loaded & {"torch", "llvmlite", "numpy", "hidet.lang"}


def test_compiling_for_the_cpu_loads_nothing_of_cuda_and_says_nothing() -> None:
    code = (
        "import sys\n"
        "import hidet\n"
        "from hidet.graph.parser import parse_graph\n"
        "from hidet.plugins.host import load_registry\n"
        "registry = load_registry()\n"
        "assert 'cuda' in registry.targets\n"
        "text = 'graph g(%x: f32[4]):\\n  %0: f32[4] = relu(%x)\\n  return %0\\n'\n"
        "hidet.compile(parse_graph(text, registry.operators))\n"
        "print(*[name for name in sys.modules if name == 'cuda' or name.startswith('hidet.cuda')])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(finished.stdout.split()) == {"hidet.cuda", "hidet.cuda._plugin", "hidet.cuda.intrinsic_families"}
    assert finished.stderr == ""


def test_the_pieces_to_write_a_plugin_with_are_light() -> None:
    loaded = modules_after("import hidet.plugins")
    assert not loaded & set(HEAVY)


def test_the_command_line_loads_no_framework() -> None:
    assert not modules_after("import hidet.cli") & {"torch", "llvmlite", "numpy", "pluggy", "rich"}


def test_a_misspelt_public_name_is_an_attribute_error() -> None:
    code = "import hidet\ntry: hidet.complie\nexcept AttributeError as error: print(error)"
    assert output_of(code) == "module 'hidet' has no attribute 'complie'; did you mean 'compile'?"


def test_a_missing_wheel_says_how_to_install_it() -> None:
    code = (
        "import hidet, sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'hidet.torch': raise ModuleNotFoundError('hidden', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "try: hidet.torch\n"
        "except AttributeError as error: print(error)"
    )
    assert output_of(code) == "hidet.torch is not installed: pip install hidet-torch"


@pytest.mark.parametrize("use", ["hidet.script", "from hidet import script_module", "hidet.lang", "hidet.float32"])
def test_scripts_without_their_wheel_say_how_to_install_it(use: str) -> None:
    code = (
        "import hidet, sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'hidet.lang': raise ModuleNotFoundError('hidden', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        f"try: {use}\n"
        "except hidet.HidetError as error: print(error.message, error.hint, sep='; ')"
    )
    name = use.split()[-1].removeprefix("hidet.")
    assert output_of(code) == f"hidet.{name} is of the wheel hidet-script; pip install hidet-script"


def test_tuning_without_its_wheel_says_how_to_install_it() -> None:
    code = (
        "import hidet, sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'hidet.tuning': raise ModuleNotFoundError('hidden', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        "try: hidet.tune\n"
        "except hidet.HidetError as error: print(error.message, error.hint, sep='; ')"
    )
    assert output_of(code) == "hidet.tune is of the wheel hidet-tune; pip install hidet-tune"


def test_what_any_wheel_puts_into_the_package_is_its_attribute(tmp_path) -> None:
    (tmp_path / "hidet").mkdir()
    (tmp_path / "hidet" / "loom.py").write_text("CLOTH = 'linen'")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); import hidet; print(hidet.loom.CLOTH)"
    assert output_of(code) == "linen"


def test_a_broken_torch_is_not_reported_as_a_missing_wheel() -> None:
    code = (
        "import hidet, sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'hidet.torch': raise ModuleNotFoundError('no lib', name='some_library')\n"
        "sys.meta_path.insert(0, Hide())\n"
        "try: hidet.torch\n"
        "except ModuleNotFoundError as error: print(error.name)"
    )
    assert output_of(code) == "some_library"


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert output_of("import hidet; print(hidet.__version__)") == version("hidet-core")


def test_public_names_are_listed_and_exist() -> None:
    code = "import hidet; print(sorted(set(hidet.__all__) - set(dir(hidet))))"
    assert output_of(code) == "[]"
