"""The tasks that serve connections: none fails in silence, and all end with their server."""

import asyncio
from collections.abc import Coroutine

__all__ = ["TaskSet"]


class TaskSet:
    """Tasks that run beside each other; what one raises goes to the loop's exception handler."""

    def __init__(self, what: str) -> None:
        """Begin with none.

        Args:
            what: What each of them is, for the report of a failure.
        """
        self._what = what
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Run one more."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": f"{self._what} failed", "exception": error})

    async def wait_none(self) -> None:
        """Wait until none runs."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def end(self) -> None:
        """Break off those that run."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
