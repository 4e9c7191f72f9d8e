import struct

import pytest

from fairtrial.errors import HostError
from fairtrial.host.seccomp import key_filter

ALLOW, DENY = 0x7FFF0000, 0x00050000 | 38


def judge(program: bytes, arch: int, number: int) -> int:
    """What the kernel would answer: the few instructions that the filter uses."""
    steps = list(struct.iter_unpack("=HBBI", program))
    accumulator = at = 0
    while True:
        code, then, otherwise, value = steps[at]
        at += 1
        if code == 0x20:
            accumulator = {0: number, 4: arch}[value]
        elif code == 0x06:
            return int(value)
        else:
            holds = accumulator == value if code == 0x15 else accumulator >= value
            at += then if holds else otherwise


@pytest.mark.parametrize(
    ("machine", "arch", "denied"),
    [
        ("x86_64", 0xC000003E, {248, 249, 250, 0x4000_0000, 0x4000_00FA}),
        ("x86_64", 0x40000003, {286, 287, 288}),
        ("aarch64", 0xC00000B7, {217, 218, 219}),
        ("aarch64", 0x40000028, {309, 310, 311}),
        ("riscv64", 0xC00000F3, {217, 218, 219}),
        ("ppc64le", 0xC0000015, {269, 270, 271}),
        ("s390x", 0x80000016, {278, 279, 280}),
    ],
)
def test_keyrings_are_denied_and_nothing_else(machine: str, arch: int, denied: set[int]) -> None:
    program = key_filter(machine)
    answers = {number: judge(program, arch, number) for number in {*range(600), *denied}}
    assert {number for number, answer in answers.items() if answer == DENY} == denied
    assert {answer for number, answer in answers.items() if number not in denied} == {ALLOW}


def test_an_unknown_convention_is_denied_whole_and_an_unknown_machine_is_an_error() -> None:
    assert {judge(key_filter("x86_64"), 0xC00000B7, number) for number in range(600)} == {DENY}
    with pytest.raises(HostError, match="vax"):
        key_filter("vax")
