"""A system-call filter that denies keyrings, which no namespace separates.

Inside a sandbox the session keyring of the person who runs us could be read; a message could be left for the next
trial; and all keys that a user may have could be used up. Whatever else the kernel offers is bounded by namespaces.
"""

import errno
import struct
from typing import Final, NamedTuple

from fairtrial.errors import HostError

__all__ = ["key_filter"]


class _Calls(NamedTuple):
    """One calling convention.

    Attributes:
        arch: The kernel's number of it.
        denied: Numbers of add_key, request_key and keyctl.
        last: Numbers from here on are a second convention under the same arch: all denied.
    """

    arch: int
    denied: tuple[int, int, int]
    last: int | None = None


# <linux/audit.h>, <asm/unistd.h>: each machine with the 32-bit convention that it also runs.
_MACHINES: Final = {
    "x86_64": (_Calls(0xC000003E, (248, 249, 250), last=0x4000_0000), _Calls(0x40000003, (286, 287, 288))),
    "aarch64": (_Calls(0xC00000B7, (217, 218, 219)), _Calls(0x40000028, (309, 310, 311))),
    "riscv64": (_Calls(0xC00000F3, (217, 218, 219)),),
    "ppc64le": (_Calls(0xC0000015, (269, 270, 271)),),
    "s390x": (_Calls(0x80000016, (278, 279, 280)),),
}
# <linux/filter.h>, <linux/seccomp.h>
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET = 0, 4
_ALLOW: Final = 0x7FFF_0000
_DENY: Final = 0x0005_0000 | errno.ENOSYS


def key_filter(machine: str) -> bytes:
    """Build the filter for a machine; a convention that it does not know is denied whole.

    Raises:
        HostError: Nobody has written down this machine's numbers.
    """
    conventions = _MACHINES.get(machine)
    if conventions is None:
        raise HostError(f"sandboxes on {machine}: its system calls are not known; add them to {__name__}")
    program = [_step(_LOAD, _ARCH_OFFSET)]
    for calls in conventions:
        block = _block(calls)
        program += [_step(_EQUAL, calls.arch, otherwise=len(block)), *block]
    return b"".join([*program, _step(_RETURN, _DENY)])


def _block(calls: _Calls) -> list[bytes]:
    tests = [(_EQUAL, number) for number in calls.denied]
    if calls.last is not None:
        tests.append((_AT_LEAST, calls.last))
    steps = [_step(_LOAD, _NUMBER_OFFSET)]
    # The denial stands behind the permission: over what is left of the tests, and over that.
    steps += [_step(code, value, then=len(tests) - position) for position, (code, value) in enumerate(tests)]
    return [*steps, _step(_RETURN, _ALLOW), _step(_RETURN, _DENY)]


def _step(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction; jumps count the instructions left out."""
    return struct.pack("=HBBI", code, then, otherwise, value)
