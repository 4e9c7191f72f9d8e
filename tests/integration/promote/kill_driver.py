"""Runs one transaction after another in a child that kills itself with SIGKILL before its n-th call of the system.

Usage: kill_driver.py DIRECTORY publish|undo|recover. Prints a line of JSON for each n, until a child comes through.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from tree_with_mirrors import CHANGES, NEW, OLD, contents, leftovers, make_tree

from fairtrial.promote import recovery, transaction
from fairtrial.promote.recovery import find_recoveries, recover
from fairtrial.promote.transaction import publish

NOW = datetime(2026, 11, 29, tzinfo=UTC)
CALLS = ("open", "write", "fsync", "fchmod", "fchown", "rename", "unlink", "close")
LIMIT = 1000


def kill_before(n: int) -> None:
    """Make this process die before its n-th call that can change something, counted from now."""
    left = [n]

    def fatal(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the call takes
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    for name in CALLS:
        setattr(os, name, fatal(getattr(os, name)))
    transaction.exchange = recovery.exchange = fatal(transaction.exchange)  # type: ignore[assignment]


def run_killed(n: int, act: Callable[[], object], *, counted_from_the_start: bool = True) -> bool:
    """Run it in a child that dies before its n-th call; True when it came through."""
    child = os.fork()
    if child == 0:
        try:
            if counted_from_the_start:
                kill_before(n)
            act()
            os._exit(0)
        finally:
            os._exit(9)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, f"the child failed at call {n}"
        return True
    return False


class StoppedError(Exception):
    """Makes a transaction undo what it did."""


def undo_killed(root: Path, n: int) -> None:
    """Stop a transaction after its second exchange, and die before the n-th call of what undoes it."""
    seen = []

    def watch(step: transaction.Step, path: str) -> None:
        if step is transaction.Step.EXCHANGED:
            seen.append(path)
        if len(seen) == 2:
            kill_before(n)
            raise StoppedError

    try:
        publish(root, CHANGES, now=NOW, watch=watch)
    except StoppedError:
        return
    raise AssertionError("nothing was undone")


def look_away(_step: transaction.Step, _path: str) -> None:
    """Nobody stops it."""


def main(directory: Path, what: str) -> None:
    """Try every n."""
    for n in range(1, LIMIT):
        root = make_tree(directory / "tree")
        if what == "publish":
            through = run_killed(n, partial(publish, root, CHANGES, now=NOW, watch=look_away))
        elif what == "undo":
            through = run_killed(n, partial(undo_killed, root, n), counted_from_the_start=False)
        else:
            interrupt_after_two(root)
            through = run_killed(n, partial(recover, root))
        before = contents(root)
        left = leftovers(root)
        named = "".join(path.read_text() for path in find_recoveries(root) if path.suffix == ".json")
        by_hand = n % 2 == 1
        if by_hand:
            follow_the_commands(root)
        else:
            recover(root)
        print(  # noqa: T201 - how the test hears of it
            json.dumps(
                {
                    "n": n,
                    "through": through,
                    "old": before.count(OLD),
                    "new": before.count(NEW),
                    "has_recovery": bool(named),
                    "unnamed": [path for path in left if Path(path).name not in named and "recovery-" not in path],
                    "by_hand": by_hand,
                    "old_after": contents(root).count(OLD),
                    "new_after": contents(root).count(NEW),
                    "left_after": [path for path in leftovers(root) if not path.endswith(".new")],
                }
            )
        )
        shutil.rmtree(root)
        if through:
            return
    raise AssertionError("no child came through")


def interrupt_after_two(root: Path) -> None:
    """Leave a tree as a kill after the second exchange leaves it."""
    child = os.fork()
    if child == 0:
        seen = []

        def watch(step: transaction.Step, path: str) -> None:
            if step is transaction.Step.EXCHANGED:
                seen.append(path)
            if len(seen) == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        publish(root, CHANGES, now=NOW, watch=watch)
        os._exit(9)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)


def follow_the_commands(root: Path) -> None:
    """Do by hand what the recovery files say."""
    for path in find_recoveries(root):
        if path.suffix == ".json":
            for command in json.loads(path.read_text())["commands"]:
                subprocess.run(["/bin/sh", "-c", command], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
