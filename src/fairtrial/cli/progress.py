"""Progress on standard error: a bar on a terminal, a line for each attempt elsewhere, nothing when quiet."""

import logging
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

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
        name = f"{total['scenario']} {total['remote_transport']} {total['subject']} run {total['run']}"
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=event.n_done, total=max(event.n_due, event.n_done), description=name)
            return
        LOG.info("[%d/%d] %s: %s", event.n_done, max(event.n_due, event.n_done), name, _said(total))


def _said(total: Mapping[str, object]) -> str:
    if total.get("skipped"):
        return f"skipped: {total['skip_reason']}"
    if total.get("error_kind"):
        return f"void ({total['error_kind']}): {total.get('error_detail', '')}"
    elapsed_ms = total.get("elapsed_ms")
    time = f"{elapsed_ms:.1f} ms" if isinstance(elapsed_ms, (int, float)) else "unmeasured"
    return f"{'ok' if total.get('returncode') == 0 else 'FAILED'}, {time}"
