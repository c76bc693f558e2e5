"""Work in processes of its own, several at once: what one of them breaks, a device included, is broken for it alone."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Died:
    """A process that ended without a result. exit_code: negative for a signal; None where it took too long."""

    exit_code: int | None

    def __str__(self) -> str:
        return "took too long" if self.exit_code is None else f"its process ended with status {self.exit_code}"


def run_apart(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int, *, seconds: float, preload: Sequence[str] = ()
) -> Iterator[tuple[Item, Result | Died]]:
    """Call `work(item)` for every item, each in a process of its own, `jobs` at once; yield results as they come.

    work, items and results go through pickle; `work` catches what it may raise. seconds: how long one item may take.
    preload: modules that all processes start with, imported once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    with ThreadPoolExecutor(jobs) as threads:
        waiting = {threads.submit(_run_one, context, work, item, seconds): item for item in items}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _run_one(context: Any, work: Callable[[Item], Result], item: Item, seconds: float) -> Result | Died:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(theirs, work, item))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            process.kill()
            return Died(None)
        result: Result = ours.recv()
    except EOFError:
        process.join()
        return Died(process.exitcode)
    process.join()
    return result


def _send(connection: Connection, work: Callable[[Any], Any], item: Any) -> None:
    connection.send(work(item))
    connection.close()
