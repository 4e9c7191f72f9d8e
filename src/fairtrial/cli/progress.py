"""Progress on standard error: a bar on a terminal, a line for each attempt elsewhere, nothing when quiet."""

import logging
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from fairtrial.evidence.endings import is_void
from fairtrial.sweep.execute import Event

__all__ = ["Progress"]

LOG: Final = logging.getLogger("fairtrial")


class Progress:
    """Watches one pass of a sweep."""

    def __init__(self) -> None:
        self._quiet = not LOG.isEnabledFor(logging.INFO)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = (
            RichProgress(*columns, console=Console(stderr=True), transient=True) if self._on_terminal() else None
        )
        self._task = self._bar.add_task("trials", total=None) if self._bar else None

    def _on_terminal(self) -> bool:
        return sys.stderr.isatty() and not self._quiet

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        if self._bar:
            self._bar.stop()

    def say(self, line: str) -> None:
        """One line for the log."""
        LOG.info("%s", line)

    def watch(self, event: Event) -> None:
        """An attempt has ended."""
        total = event.total
        name = _name(total)
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=event.n_done, total=max(event.n_due, event.n_done), description=name)
            return
        LOG.info("[%d/%d] %s: %s", event.n_done, max(event.n_due, event.n_done), name, _said(total))


def _name(total: Mapping[str, object]) -> str:
    if "arm" in total:
        return f"{total['task']} {total['arm']} run {total['run']}"
    return f"{total['scenario']} {total['remote_transport']} {total['subject']} run {total['run']}"


def _said(total: Mapping[str, object]) -> str:
    if "arm" in total:
        return _said_of_bench(total)
    if total.get("skipped"):
        return f"skipped: {total['skip_reason']}"
    if total.get("error_kind"):
        return f"void ({total['error_kind']}): {total.get('error_detail', '')}"
    elapsed_ms = total.get("elapsed_ms")
    time = f"{elapsed_ms:.1f} ms" if isinstance(elapsed_ms, (int, float)) else "unmeasured"
    return f"{'ok' if total.get('returncode') == 0 else 'FAILED'}, {time}"


def _said_of_bench(total: Mapping[str, object]) -> str:
    duration_s = total.get("duration_s")
    time = f", {duration_s:.1f} s" if isinstance(duration_s, (int, float)) else ""
    if total.get("resolved") is True:
        return f"resolved{time}"
    void = "void, " if is_void(total) else ""
    return f"{void}{total['error_kind']}: {str(total.get('error_detail') or '')[:200]}{time}"
