"""The table of the names of hidet 0.6 tells the truth."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from hidet.errors import HidetError, HidetWarning
from hidet.plugins.host import load_registry
from tests.name_rows import State
from tests.names_of_hidet import PAGE, SETUP, names, page

ROWS = {name.path: name for name in names()}


def found(path: str) -> Any:
    """What a dotted path names. AttributeError where there is nothing."""
    first, *rest = path.split(".")
    value = importlib.import_module(first)
    for number, part in enumerate(rest):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join([first, *rest[: number + 1]]))
            except ImportError as error:
                # What plug-ins add to a class is found by objects of it.
                added = load_registry().attributes.get(".".join([first, *rest[: number + 1]]))
                if added is None:
                    raise AttributeError(path) from error
                value = added.resolve()
    return value


@pytest.fixture(autouse=True)
def _own_settings(tmp_path, monkeypatch):
    """Uses change settings and write files."""
    import hidet.option
    import hidet.torch

    monkeypatch.chdir(tmp_path)
    token = hidet.option._SETTINGS.set(hidet.option.Settings())
    yield
    hidet.option._SETTINGS.reset(token)
    hidet.torch.dynamo_config.reset()


def of_state(*states: State) -> list[str]:
    return [path for path, name in ROWS.items() if name.state in states]


def run(use: str) -> None:
    text = SETUP + use  # scripts in it are read from here
    exec(text, {})


def test_no_name_has_two_rows():
    assert len(ROWS) == len(names())


@pytest.mark.parametrize("path", [path for path in of_state(State.ACTS) if ROWS[path].use])
@pytest.mark.filterwarnings("error::hidet.errors.HidetWarning")
@pytest.mark.thorough(every=4)
def test_names_that_act_are_called_without_a_word(path):
    run(ROWS[path].use)


def test_names_that_act_in_kernels_and_elsewhere_are_there():
    absent = []
    for path in of_state(State.ACTS):
        if ROWS[path].use:
            continue
        try:
            found(path)
        except AttributeError:
            absent.append(path)
    assert absent == []


@pytest.mark.parametrize("path", of_state(State.WARNS))
def test_names_that_are_accepted_say_what_to_use(path):
    with pytest.warns(HidetWarning) as told:
        run(ROWS[path].use)
    assert len(told) == 1
    assert told[0].message.hint


@pytest.mark.parametrize("path", of_state(State.REFUSED))
def test_names_that_are_refused_say_what_to_use(path):
    with pytest.raises(HidetError) as refused:
        run(ROWS[path].use)
    assert refused.value.hint


def test_names_that_are_missing_are_not_there():
    there = []
    for path in of_state(State.MISSING):
        try:
            found(path)
            there.append(path)
        except (AttributeError, HidetError):
            pass
    assert there == [], "tests/names_of_hidet.py calls these missing, but they are there"


def test_the_page_is_the_table():
    assert PAGE.read_text() == page(), "python -m tests.names_of_hidet writes it"
