"""Peak memory of a finished child, and when the kernel's figure may be believed."""

from pathlib import Path

__all__ = ["believe_peak_memory", "read_own_peak_bytes"]

# The kernel sums resident pages in per-CPU batches, so two readings of one value may differ by a few hundred KiB.
_READING_ERROR_BYTES = 1024 * 1024


def read_own_peak_bytes() -> int:
    """Read our own largest resident size so far."""
    for line in Path("/proc/self/status").read_text(errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    message = "/proc/self/status has no VmHWM line"
    raise OSError(message)


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
