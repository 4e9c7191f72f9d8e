"""Peak memory of a finished child, and when the kernel's figure may be believed."""

import os

__all__ = ["believe_peak_memory", "read_own_peak_bytes"]

# The kernel sums resident pages in per-CPU batches, so two readings of one value may differ by a few hundred KiB.
_READING_ERROR_BYTES = 1024 * 1024


def read_own_peak_bytes() -> int:
    """Read our own largest resident size so far."""
    fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.read(fd, 8192)
    finally:
        os.close(fd)
    return int(status.partition(b"VmHWM:")[2].split(maxsplit=1)[0]) * 1024


def believe_peak_memory(reported_bytes: int, *, floor_bytes: int) -> tuple[int | None, str | None]:
    """Decide whether a child's peak, as wait4 reports it, is its own.

    A new process starts on the memory of the one that spawns it, and on exec the kernel folds that memory's
    high-water mark into the child's `ru_maxrss`. A reported peak near our own high-water mark is therefore ours, and
    the child's is only known to lie below it.

    Returns:
        The peak in bytes and None, or None and the reason.
    """
    if reported_bytes > floor_bytes + _READING_ERROR_BYTES:
        return reported_bytes, None
    return (
        None,
        f"below the harness's own peak of {floor_bytes} bytes, where the kernel's figure is not the child's own",
    )
