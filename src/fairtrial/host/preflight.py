"""Whether sandboxes work here at all, found out by running one before anything is spent."""

from typing import Final

from fairtrial.errors import HostError
from fairtrial.host.limits import Enforcement
from fairtrial.host.sandbox import run_sandbox
from fairtrial.host.slot import Slot
from fairtrial.model.sandbox import Limits, SandboxSpec

__all__ = ["require_sandboxes"]

_WAIT_S: Final = 10.0


def require_sandboxes(slot: Slot, enforcement: Enforcement) -> None:
    """Run a trivial program in a sandbox like those of trials.

    Raises:
        HostError: It did not succeed; the message says why and what to do.
    """
    spec = SandboxSpec(argv=("/usr/bin/true",), env={}, cwd="/", limits=Limits(wall_s=_WAIT_S, grace_s=0.0))
    result = run_sandbox(spec, slot=slot, enforcement=enforcement)
    if not result.ok:
        said = result.detail or result.stderr.tail.decode(errors="replace").strip() or f"it ended {result.state}"
        raise HostError(
            f"a sandbox cannot be run here: {said}; install bubblewrap 0.8 or newer and allow unprivileged user"
            " namespaces (sysctl user.max_user_namespaces, the container's seccomp profile)"
        )
