"""What the tests of namespaces run: a harness that starts an isolated worker that starts a tree of descendants."""

import os
import sys

from fairtrial.host.life import guard_life
from fairtrial.host.namespace import Isolation, isolated_argv
from fairtrial.host.running import Plumbing, start


def harness(isolation: Isolation) -> None:
    """Start a worker whose input we hold, say so, and wait to be killed."""
    argv = isolated_argv([sys.executable, __file__, "worker"], isolation)
    with start(
        argv, env=dict(os.environ), stdin=Plumbing.PIPE, stdout=Plumbing.PIPE, stderr=Plumbing.INHERIT
    ) as worker:
        assert worker.stdout_fd is not None
        told = os.read(worker.stdout_fd, 100).decode().split()
        sys.stdout.write(f"{worker.pid} {told[0]}\n")
        sys.stdout.flush()
        sys.stdin.read()
        worker.close_stdin()
        worker.wait(60)


def worker() -> None:
    """Start descendants that do all they can to be overlooked, say our outer process id, and wait."""
    guard_life(0)
    hidden = "setsid sh -c 'trap \"\" TERM HUP INT; setsid sleep 300 & sleep 300 & wait' & sleep 300 & wait"
    with start(["sh", "-c", hidden], env=dict(os.environ)):
        sys.stdout.write(os.path.basename(os.readlink("/proc/self")) + "\n")  # noqa: PTH115, PTH119
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker()
    else:
        harness(Isolation(sys.argv[2]))
