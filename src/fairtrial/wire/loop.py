"""What the asynchronous handlers of `gateway` may ask of the event loop, so that only `host` and `wire` own one."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeAlias, TypeVar

from fairtrial.host.clock import monotonic_s

__all__ = [
    "Bell",
    "Slots",
    "Task",
    "in_thread",
    "loop_s",
    "report_errors_to",
    "run_until_done",
    "sleep_s",
    "start_task",
    "watch_fd",
    "within_s",
]

T = TypeVar("T")
Task: TypeAlias = asyncio.Task[None]


def loop_s() -> float:
    """Seconds on the loop's clock, which is the monotonic one; only differences mean something."""
    return monotonic_s()


async def sleep_s(duration_s: float) -> None:
    """Let others run for so long."""
    await asyncio.sleep(duration_s)


def run_until_done(main: Callable[[], Coroutine[None, None, T]]) -> T:
    """Run an event loop for one coroutine."""
    return asyncio.run(main())


async def within_s(duration_s: float, work: Coroutine[None, None, T]) -> T:
    """Do something, and give it up after so long.

    Raises:
        TimeoutError: It was given up.
    """
    async with asyncio.timeout(duration_s):
        return await work


async def in_thread(work: Callable[[], T]) -> T:
    """Do what takes long while others run. It is waited for even if whoever asked is cancelled meanwhile."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    finally:
        await asyncio.wait({working})


def start_task(work: Coroutine[None, None, None]) -> Task:
    """Run something beside; whoever starts it keeps the task and ends it."""
    return asyncio.create_task(work)


def watch_fd(fd: int, on_readable: Callable[[], None]) -> None:
    """Call back whenever a descriptor is readable."""
    asyncio.get_running_loop().add_reader(fd, on_readable)


def report_errors_to(note: Callable[[str], None]) -> None:
    """Have what nobody caught noted instead of logged."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        note(f"{context.get('message')}: {context.get('exception')!r}")

    asyncio.get_running_loop().set_exception_handler(handle)


class Bell:
    """Wakes everybody who waits for a change, as often as there is one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake all who wait now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Wait for the next ring, for at most so long."""
        event = self._event
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return


class Slots:
    """A number of places, each taken for the time of an `async with`."""

    def __init__(self, n: int) -> None:
        self._semaphore = asyncio.Semaphore(n)

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()

    async def __aexit__(self, *_exit: object) -> None:
        self._semaphore.release()
