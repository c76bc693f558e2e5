"""`hidet doctor`: what it looks at, and the advice it gives."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

import hidet
from hidet.cli import main
from hidet.doctor import Check, examine, report
from hidet.plugins.host import discover
from hidet.plugins.specs import CheckSpec, TargetSpec


@pytest.fixture(autouse=True)
def own_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_CACHE_DIR", str(tmp_path / "cache"))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    """A distribution that is found on `folder`."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {each}" for each in requires), ""]))


def test_doctor_passes_here_and_names_what_it_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_PLUGINS", "hidet.cpu._plugin")
    checks = {check["name"]: check for check in json.loads(run("--json").stdout)}
    assert checks["plug-in core"]["status"] == "ok"
    assert "python" in checks and "kernel cache" in checks
    assert not [check for check in checks.values() if check["status"] == "fail"]


def test_doctor_runs_a_kernel_on_the_processor() -> None:
    (line,) = [check.detail for check in examine(discover("hidet.cpu._plugin")) if check.name == "target cpu"]
    assert line.startswith("a kernel compiled and run in")


class Weaver:
    HIDET_API = 1

    def hidet_targets(self) -> list[TargetSpec]:
        return [
            TargetSpec(name="loom", load="weaver:Loom", machines="weaver:list_machines"),
            TargetSpec(name="wheel", load="weaver:Wheel", machines="no_such_package:list_machines"),
            TargetSpec(name="bobbin", load="weaver:Bobbin", machines="weaver:list_nothing"),
        ]


def test_doctor_lists_the_devices_that_targets_find(monkeypatch: pytest.MonkeyPatch) -> None:
    looms = SimpleNamespace(list_machines=lambda: ["loom:0: a loom", "loom:1: another one"], list_nothing=list)
    monkeypatch.setitem(sys.modules, "weaver", looms)
    with hidet.plugins.use(Weaver) as registry:
        checks = [(check.status, check.name, check.detail) for check in examine(registry)]
    assert ("ok", "target loom", "loom:0: a loom") in checks and ("ok", "target loom", "loom:1: another one") in checks
    (failed,) = [(status, detail) for status, name, detail in checks if name == "target wheel"]
    assert failed[0] == "warn" and "no_such_package" in failed[1]
    assert ("none", "target bobbin", "no device on this machine") in checks


def test_doctor_fails_where_a_target_runs_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weaver", SimpleNamespace(list_machines=lambda: ["loom:0: a loom"]))
    with hidet.plugins.use(Weaver) as registry:
        (failed,) = [check for check in examine(registry) if check.name == "target loom" and check.status == "fail"]
    assert "Loom" in failed.detail


class Miller:
    """A wheel that looks at its own needs."""

    HIDET_API = 1

    def hidet_checks(self) -> list[CheckSpec]:
        return [
            CheckSpec(name="mill.stone", load="miller:check_stone"),
            CheckSpec(name="mill.wheel", load="miller:check_wheel"),
        ]


def test_a_wheel_reports_checks_of_its_own_and_one_that_breaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stone = Check("stone", "warn", "it is worn", "turn it")
    miller = SimpleNamespace(check_stone=lambda: [stone], check_wheel=lambda: 1 / 0)
    monkeypatch.setitem(sys.modules, "miller", miller)
    with hidet.plugins.use(Miller) as registry:
        checks = examine(registry)
    assert stone in checks
    assert Check("mill.wheel", "fail", "ZeroDivisionError: division by zero") in checks
    assert "warn stone: it is worn\n       turn it" in report(checks)
    assert report([Check("long", "ok", "two\n\n  lines")]) == "ok   long: two lines"


def test_doctor_names_versions_that_clash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installers do not look again at what somebody replaces later."""
    install(tmp_path, "acme", "1.0", "spindle>=2", "thread<4", "needle; extra == 'sewing'")
    install(tmp_path, "spindle", "1.5")
    (tmp_path / "acme-1.0.dist-info" / "entry_points.txt").write_text("[hidet.plugins]\nacme = acme_plugin\n")
    (tmp_path / "acme_plugin.py").write_text("HIDET_API = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    checks = {check.name: check for check in examine(discover("acme"))}
    assert checks["spindle"] == Check("spindle", "fail", "1.5, but acme needs >=2", "pip install 'spindle>=2'")
    assert checks["thread"] == Check("thread", "fail", "not installed, needed by acme", "pip install thread")
    assert "needle" not in checks


def test_what_is_pasted_into_an_issue_names_no_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HIDET_PLUGINS", "")
    text = run("--paste").stdout
    assert text.startswith("```text\n") and text.endswith("```\n")
    assert os.path.join("~", "cache") in text and str(tmp_path) not in text


def test_doctor_fails_for_a_disabled_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDET_PLUGINS", "no_such_package._plugin")
    result = run()
    assert result.exit_code == 1
    assert "fail plug-in no_such_package._plugin: disabled at import" in result.stdout


def test_doctor_fails_when_another_distribution_owns_the_import_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "hidet", "0.6.1")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run()
    assert result.exit_code == 1
    assert "fail import name: the files of distribution 'hidet' 0.6.1 are mixed with ours" in result.stdout
