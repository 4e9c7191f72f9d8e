import os
from pathlib import Path

from fairtrial.host.machine import describe_machine, filesystem_of, load_average_1m, parse_cpu_model


def test_this_machine_is_described() -> None:
    machine = describe_machine()
    assert machine.kernel == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert machine.hostname == os.uname().nodename
    assert machine.python.startswith("3.")
    assert 1 <= machine.n_cpus <= (os.cpu_count() or 1)
    assert machine.memory_bytes > 2**26
    assert machine.arch


def test_cpus_that_we_may_not_use_do_not_count() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert describe_machine().n_cpus == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_the_cpu_model_is_the_first_one_named() -> None:
    text = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2.0GHz: v2\n\nprocessor\t: 1\nmodel name\t: Other\n"
    assert parse_cpu_model(text) == "Some CPU @ 2.0GHz: v2"


def test_a_cpu_without_a_name_is_unknown() -> None:
    assert parse_cpu_model("processor\t: 0\nBogoMIPS\t: 50.00\n") is None


def test_the_load_is_what_the_kernel_says() -> None:
    assert load_average_1m() >= 0
    assert filesystem_of(Path("/proc")).is_network is False
