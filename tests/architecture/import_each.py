"""`import_each.py WARM,WARM MODULE...`: import each module in its own process; print what it did besides importing.

Run by test_imports.py with `-W error`. The warm modules are imported first and those of fairtrial among them forgotten
again, so that the libraries are there already and what a fork sees is the work of our own modules.
"""

import importlib
import os
import sys
import threading
import traceback
from pathlib import Path

PROGRAM_EVENTS = frozenset(
    {"os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen", "pty.spawn"}
)
FILE_EVENTS = frozenset(
    {"os.chdir", "os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate",
     "os.utime", "os.putenv", "os.unsetenv", "os.kill", "signal.pthread_kill", "shutil.rmtree", "tempfile.mkstemp"}
)  # fmt: skip
SOCKET_EVENTS = frozenset({"socket.__new__", "socket.bind", "socket.connect", "socket.getaddrinfo"})
FORBIDDEN = PROGRAM_EVENTS | FILE_EVENTS | SOCKET_EVENTS


def forget_ours() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "fairtrial"]:
        del sys.modules[name]


def import_one(name: str) -> list[str]:
    """Import the module; return what it did that an import must not do."""
    done: list[str] = []
    watching = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if not watching:
            return
        writes = (
            event == "open"
            and isinstance(flags := arguments[2], int)
            and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if event in FORBIDDEN or writes:
            done.append(f"{event}{arguments!r}")

    sys.addaudithook(watch)
    environment = dict(os.environ)
    importlib.import_module(name)
    watching = False
    if threading.active_count() > 1 or len(list(Path("/proc/self/task").iterdir())) > 1:
        done.append("started a thread")
    if dict(os.environ) != environment:
        done.append("changed the environment")
    return done


def in_a_fork(name: str) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        done = import_one(name)
        for each in done:
            sys.stdout.write(f"{name}: {each}\n")
        status = 0
    except BaseException:  # noqa: BLE001 -- a child that leaves by an exception would go on as a second parent
        sys.stdout.write(f"{name}: {traceback.format_exc()}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> int:
    warm, names = sys.argv[1].split(","), sys.argv[2:]
    for name in warm:
        importlib.import_module(name)
    forget_ours()
    return max([in_a_fork(name) for name in names], default=1)


if __name__ == "__main__":
    sys.exit(main())
