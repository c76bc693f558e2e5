"""Work in processes of its own: results come back, and a process that breaks is named, not waited for."""

import math
import os
import time

from .apart import Died, run_apart


def test_every_item_gets_its_result() -> None:
    assert dict(run_apart(math.sqrt, [4.0, 9.0, 16.0], 2, seconds=60)) == {4.0: 2.0, 9.0: 3.0, 16.0: 4.0}


def test_a_process_that_ends_early_breaks_no_other() -> None:
    assert list(run_apart(os._exit, [7], 2, seconds=60)) == [(7, Died(7))]
    assert str(Died(7)) == "its process ended with status 7"


def test_a_process_that_takes_too_long_is_ended() -> None:
    assert list(run_apart(time.sleep, [60], 1, seconds=0.2)) == [(60, Died(None))]
    assert str(Died(None)) == "took too long"
