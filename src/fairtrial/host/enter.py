"""`python -m fairtrial.host.enter SLOT_ID[,SLOT_ID] -- COMMAND`: start a worker as PID 1 of its own namespaces.

util-linux's `unshare` does the same, save that it can map a second uid only with a set-uid program that many machines
lack. Three processes: this one, which waits for the worker and ends as it did; one that stays outside for the moment
it takes to write the maps; the worker.
"""

import os
import sys
from pathlib import Path

from fairtrial.host.kernel import (
    NEW_MOUNTS,
    NEW_PIDS,
    NEW_USERS,
    die_with_parent,
    keep_capabilities_over_exec,
    make_mounts_private,
    mount,
    unshare,
)

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code, 128 + number when a signal ended it."""
    ids, dashes, *command = arguments
    if dashes != "--" or not command:
        sys.stderr.write("usage: python -m fairtrial.host.enter SLOT_ID[,SLOT_ID] -- COMMAND ...\n")
        return 2
    try:
        _leave_namespaces([int(slot_id) for slot_id in ids.split(",")])
    except OSError as problem:
        sys.stderr.write(f"cannot make a user namespace: {problem.strerror or problem}\n")
        return 1
    worker = os.fork()
    if worker == 0:
        _become(command)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    return code if code >= 0 else 128 - code


def _leave_namespaces(slot_ids: list[int]) -> None:
    """Enter new namespaces and have the maps written from outside, where alone more than one id may be mapped."""
    uid, gid = os.geteuid(), os.getegid()
    ready_read, ready_write = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(ready_write)
        went = os.read(ready_read, 1)
        os._exit(_write_maps(os.getppid(), uid, gid, slot_ids) if went else 1)
    os.close(ready_read)
    unshare(NEW_USERS | NEW_PIDS | NEW_MOUNTS)
    os.write(ready_write, b"!")
    os.close(ready_write)
    if os.waitpid(mapper, 0)[1]:
        raise OSError(0, "its id maps cannot be written")


def _write_maps(pid: int, uid: int, gid: int, slot_ids: list[int]) -> int:
    process = Path(f"/proc/{pid}")
    more = "".join(f"{slot_id} {slot_id} 1\n" for slot_id in slot_ids if slot_id != uid)
    try:
        if uid != 0:
            (process / "setgroups").write_text("deny")
        (process / "uid_map").write_text(f"{uid} {uid} 1\n{more}")
        (process / "gid_map").write_text(f"{gid} {gid} 1\n{more}")
    except OSError as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


def _become(command: list[str]) -> None:
    try:
        die_with_parent()
        make_mounts_private()
        mount("proc", "/proc", "")  # Bubblewrap looks up its children in /proc: the numbers must be those we see
        if os.geteuid() != 0:
            keep_capabilities_over_exec()
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as problem:
        sys.stderr.write(f"cannot start {command[0]} in namespaces of its own: {problem.strerror}\n")
    os._exit(127)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
