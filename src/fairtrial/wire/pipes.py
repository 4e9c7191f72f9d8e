"""Pipes under an event loop, by descriptor.

asyncio's own pipe transports take a descriptor over and close it, which `host.process.Running` also does; two owners
of one number end with a stranger's file closed. Here whoever opened a pipe closes it.
"""

import asyncio
import os

__all__ = ["READ_BYTES", "read_pipe", "wait_readable", "wait_writable", "write_pipe"]

READ_BYTES = 64 * 1024
"""What a pipe holds unless it was enlarged, so as much as one read can return."""


def _ready(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def wait_readable(fd: int) -> None:
    """Wait until a read would not block."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _ready, future)
    try:
        await future
    finally:
        loop.remove_reader(fd)


async def wait_writable(fd: int) -> None:
    """Wait until a write would not block."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, _ready, future)
    try:
        await future
    finally:
        loop.remove_writer(fd)


async def read_pipe(fd: int) -> bytes:
    """Read what is there, waiting for the first byte; b"" at the end. The descriptor must be non-blocking."""
    while True:
        try:
            return os.read(fd, READ_BYTES)
        except BlockingIOError:
            await wait_readable(fd)


async def write_pipe(fd: int, data: bytes) -> None:
    """Write all of it. The descriptor must be non-blocking.

    Raises:
        BrokenPipeError: Nobody reads any more.
    """
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await wait_writable(fd)
