"""What this machine is, as far as it can change a measurement."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from fairtrial.host.mounts import FileSystem, filesystem_of

__all__ = ["FileSystem", "Machine", "describe_machine", "filesystem_of", "load_average_1m", "parse_cpu_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A description that belongs into every sweep's record.

    Attributes:
        hostname: Node name.
        platform: Name of the distribution, or None.
        kernel: Kernel release.
        arch: Machine architecture, such as x86_64.
        python: Version of the interpreter that runs the harness.
        n_cpus: CPUs that we may run on, which can be fewer than the machine has.
        cpu_model: Name of the first CPU, or None where the kernel gives none (many ARM machines).
        memory_bytes: Physical memory.
    """

    hostname: str
    platform: str | None
    kernel: str
    arch: str
    python: str
    n_cpus: int
    cpu_model: str | None
    memory_bytes: int


def describe_machine() -> Machine:
    """Describe the machine we run on."""
    system = os.uname()
    return Machine(
        hostname=system.nodename,
        platform=_distribution(),
        kernel=system.release,
        arch=system.machine,
        python=platform.python_version(),
        n_cpus=len(os.sched_getaffinity(0)),
        cpu_model=parse_cpu_model(Path("/proc/cpuinfo").read_text(errors="replace")),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    )


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def parse_cpu_model(cpuinfo: str) -> str | None:
    """Find the first CPU's name in /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return None


def load_average_1m() -> float:
    """Return the number of runnable or uninterruptible tasks, averaged over a minute."""
    return os.getloadavg()[0]
