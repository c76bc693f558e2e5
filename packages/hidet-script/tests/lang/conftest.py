"""What tests of wrong scripts share."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import pytest

from hidet.errors import ScriptError
from hidet.lang import script


@pytest.fixture
def refused() -> Callable[[FunctionType, str, int, int, str | None], None]:
    """Tests that a script is refused with a problem, at a line below its `def` and a column, and with advice."""

    def test(function: FunctionType, problem: str, line: int, column: int, hint: str | None) -> None:
        with pytest.raises(ScriptError) as caught:
            script(function)
        error = caught.value
        assert problem in error.message
        assert error.loc is not None
        assert error.loc.file == function.__code__.co_filename
        assert (error.loc.line - function.__code__.co_firstlineno, error.loc.column) == (line, column)
        assert (hint or "") in (error.hint or "")
        assert "| " + " " * (column - 1) + "^" in str(error)

    return test
