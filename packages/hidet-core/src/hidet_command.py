"""The command `hidet`, and `python -m hidet_command`: they start where another package has the name `hidet` as well.

What other packages are called is not ours to choose: distribution `hidet` overwrites files of hidet-core, and folders
named `hidet` are found first. This module has a name of its own, and imports nothing of `hidet` before it has looked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

_PACKAGE = Path(__file__).resolve().parent / "hidet" / "__init__.py"
"""Where hidet-core has put it, whatever is found first."""
_AGAIN = "pip install --force-reinstall --no-deps hidet-core, and the other hidet- wheels that `pip list` shows"
OTHER = "hidet"
"""A distribution of another project that installs its own package `hidet` over ours."""


@dataclass(frozen=True, slots=True)
class NameConflict:
    """Why `import hidet` does not find hidet-core's package, and what to do."""

    detail: str
    hint: str


def find_conflict() -> NameConflict | None:
    """What has taken the place of hidet-core's package; None where nothing has."""
    spec = find_spec("hidet")
    origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
    if origin != _PACKAGE:
        found = "a folder without __init__.py" if origin is None else str(origin)
        return NameConflict(
            f"`import hidet` finds {found}, before {_PACKAGE} of hidet-core",
            "rename that folder, take it out of PYTHONPATH, or start Python elsewhere",
        )
    other = _version(OTHER)
    if other is not None:
        return NameConflict(
            f"the files of distribution {OTHER!r} {other} are mixed with ours in {_PACKAGE.parent}",
            f"pip uninstall {OTHER}, then {_AGAIN}",
        )
    if not _is_as_installed():
        return NameConflict(f"{_PACKAGE} is not the file that hidet-core {_version('hidet-core')} installed", _AGAIN)
    return None


def _version(name: str) -> str | None:
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None


def _is_as_installed() -> bool:
    """Whether the file has the digest that its wheel was installed with; an editable install states none."""
    try:
        files = distribution("hidet-core").files or ()
    except PackageNotFoundError:
        return True
    stated = [file.hash for file in files if file.as_posix() == "hidet/__init__.py" and file.hash is not None]
    if not stated:
        return True
    digest = hashlib.new(stated[0].mode, _PACKAGE.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == stated[0].value


def main() -> NoReturn:
    """Run the command with the arguments of the process; say what is wrong, and exit with 1, where `hidet` is not
    hidet-core's package."""
    conflict = find_conflict()
    if conflict is None:
        from hidet.cli import main as run

        sys.exit(run(prog_name="hidet"))
    if "--json" in sys.argv:
        print(json.dumps([{"name": "import name", "status": "fail", **asdict(conflict)}], indent=2))
    else:
        print(f"fail import name: {conflict.detail}\n       {conflict.hint}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
