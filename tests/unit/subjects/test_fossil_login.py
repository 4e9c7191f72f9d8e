"""Arming fossil's store: a login that kept its rights is told, for nothing on the wire would tell."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.host.process import run
from fairtrial.model.loop import Place, StoreFault, Transport, Variant
from fairtrial.protocols import Subject
from fairtrial.subjects.fossil import Fossil


@pytest.mark.parametrize(("told", "armed"), [("gjorz", True), ("s", False), ("", False)])
def test_a_login_that_kept_its_rights_is_no_armed_store(
    tmp_path: Path, make_place: Callable[[Subject, Transport], Place], told: str, armed: bool
) -> None:
    program = tmp_path / "fossil"
    program.write_text(f"#!/bin/sh\necho '{told}'\n")
    program.chmod(0o755)
    subject = Fossil(Variant(name="fossil", subject="fossil", label="fossil", binary=str(program)))
    sabotage = subject.sabotage(StoreFault.REFUSE, make_place(subject, Transport.HTTP))
    assert sabotage is not None
    (arm,) = sabotage.arm
    result = run(arm.argv, env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path, timeout_s=60)
    assert result.ok is armed
    assert (b"the capabilities are" in result.stderr.tail) is not armed
