"""The gateway itself: its upstreams, its open trials, and the control socket where they are opened and closed."""

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from fairtrial.errors import FairtrialError, HostError, UsageError
from fairtrial.gateway.control import (
    MAX_LINE_BYTES,
    DirectoryReleased,
    DirectoryReleasing,
    Status,
    StatusAsked,
    TrialClosed,
    TrialClosing,
    TrialOpened,
    TrialOpening,
    parse_message,
    render_error,
    render_message,
)
from fairtrial.gateway.dialects import DIALECTS
from fairtrial.gateway.pace import Heard, News, read_status
from fairtrial.gateway.pacer import Pacer
from fairtrial.gateway.player import ScriptPlayer
from fairtrial.gateway.script import read_script
from fairtrial.gateway.settings import GatewaySettings
from fairtrial.gateway.source import Provider, Source
from fairtrial.gateway.state import TrialState
from fairtrial.gateway.trial import Trial
from fairtrial.host.files import remove_tree
from fairtrial.store.redact import Redactor
from fairtrial.wire.faults import parse_faults
from fairtrial.wire.lines import LineServer
from fairtrial.wire.loop import Bell, Task, report_errors_to, start_task, within_s
from fairtrial.wire.upstream import Upstream, UpstreamBrokenError, parse_origin

__all__ = ["CONTROL", "Gateway"]

CONTROL: Final = "control"
"""Name of the control socket in the gateway's directory."""

_MAX_INTERNAL_ERRORS: Final = 20
_RELEASE_S: Final = 60.0
"""How long to wait for the bell before looking again; it rings whenever there is something to see."""


class Gateway:
    """One gateway."""

    def __init__(self, settings: GatewaySettings, keys: Mapping[str, str]) -> None:
        """Prepare.

        Args:
            settings: What it is told.
            keys: The key of each upstream, by its name.

        Raises:
            UsageError: An upstream's address is none.
        """
        self.redactor = Redactor(key for key in keys.values() if key)
        self._directory = Path(settings.directory)
        self._probe_s = settings.probe_s
        self._max_refused = settings.max_refused
        self._is_made = False
        self._pacer = Pacer()
        self._providers = {
            each.name: Provider(each.name, Upstream(parse_origin(each.url), ca_file=each.ca_file), keys[each.name])
            for each in settings.upstreams
        }
        self._trials: dict[Trial, str] = {}
        self._writing: set[str] = set()
        self._released: set[Path] = set()
        self._bell = Bell()
        self._probes: dict[str, Task] = {}
        self._internal_errors: deque[str] = deque(maxlen=_MAX_INTERNAL_ERRORS)
        self._control = LineServer(lambda: _Session(self), max_line_bytes=MAX_LINE_BYTES)

    @property
    def control(self) -> Path:
        """The control socket."""
        return self._directory / CONTROL

    @property
    def _spool(self) -> Path:
        return self._directory / "spool"

    async def start(self) -> None:
        """Make the directory and listen for trials.

        Raises:
            HostError: The directory is there already, or cannot be made.
        """
        report_errors_to(self._note_error)
        try:
            self._directory.mkdir(mode=0o700)
            self._is_made = True
            if os.geteuid() == 0:
                # A trial's own user must get at its socket through here, where every name is a secret.
                self._directory.chmod(0o711)
            self._spool.mkdir(mode=0o700)
            await self._control.listen(self.control)
        except OSError as error:
            raise HostError(
                f"gateway directory {self._directory}: {error.strerror}; name one that is not there"
            ) from error

    def _note_error(self, problem: str) -> None:
        self._internal_errors.append(self.redactor.redact_text(problem))

    async def open(self, opening: TrialOpening) -> tuple[Trial, TrialOpened]:
        """Open a trial.

        Raises:
            UsageError: A name, path or value in the request is wrong, or the wire log was released.
            HostError: A file or socket cannot be made.
        """
        if Path(opening.ledger).parent in self._released:
            raise UsageError(f"{opening.ledger}: the trial has been given up, and nothing more is written there")
        self._writing.add(opening.ledger)
        try:
            trial, opened = await self._open(opening)
        except BaseException:
            self._stop_writing(opening.ledger)
            raise
        self._trials[trial] = opening.ledger
        return trial, opened

    async def _open(self, opening: TrialOpening) -> tuple[Trial, TrialOpened]:
        if unknown := [name for name in opening.dialects if name not in DIALECTS]:
            raise UsageError(f"dialect {unknown[0]!r}; choose from {', '.join(DIALECTS)}")
        opening = replace(opening, faults=parse_faults([asdict(fault) for fault in opening.faults]))
        try:
            state = TrialState(
                opening,
                source=self._source_of(opening),
                pacer=self._pacer,
                redactor=self.redactor,
                spool_directory=self._spool,
                max_refused=self._max_refused,
            )
            trial = Trial(state)
            return trial, await trial.listen(self._directory)
        except OSError as error:
            raise HostError(f"trial {opening.trial}: {error}") from error

    def _source_of(self, opening: TrialOpening) -> Source:
        match opening.upstream, opening.script:
            case str(name), None if name in self._providers:
                return self._providers[name]
            case str(name), None:
                raise UsageError(f"upstream {name!r}; this gateway has {', '.join(self._providers) or 'none'}")
            case None, str(path):
                return ScriptPlayer(read_script(Path(path)))
            case _:
                raise UsageError("give either an upstream or a script")

    async def close(self, trial: Trial) -> TrialClosed:
        """Close a trial.

        Raises:
            OSError: The wire log cannot be made durable.
        """
        ledger = self._trials.pop(trial)
        try:
            return await trial.close()
        finally:
            self._stop_writing(ledger)

    async def release(self, directory: Path) -> None:
        """Wait until nothing is written in the directory of an attempt whose worker is gone, and let no trial begin."""
        self._released.add(directory)
        while any(Path(ledger).parent == directory for ledger in self._writing):
            await self._bell.wait(_RELEASE_S)

    def _stop_writing(self, ledger: str) -> None:
        self._writing.discard(ledger)
        self._bell.ring()

    def probe(self) -> None:
        """Find out beside whether providers that are down answer again; a script always would."""
        for name in self._pacer.due_probes():
            if not self._pacer.try_place(name):
                continue
            provider = self._providers.get(name)
            if provider is None:
                self._pacer.heard(name, News(what=Heard.REACHED))
            else:
                self._probes[name] = start_task(self._probe(name, provider))

    async def _probe(self, name: str, provider: Provider) -> None:
        news = News(what=Heard.NOTHING)
        try:
            news = read_status(*await within_s(self._probe_s, provider.probe()))
            if news.what in {Heard.SUCCESS, Heard.NOTHING}:  # what it thinks of our question does not matter
                news = News(what=Heard.REACHED)
        except TimeoutError:
            news = News(what=Heard.FAILED, reason=f"no answer within {self._probe_s:g} s")
        except UpstreamBrokenError as problem:
            news = News(what=Heard.FAILED, reason=str(problem))
        finally:
            del self._probes[name]
            self._pacer.heard(name, news)

    def status(self) -> Status:
        """How it is."""
        return Status(
            providers=self._pacer.status(), trials=len(self._trials), internal_errors=tuple(self._internal_errors)
        )

    async def stop(self) -> None:
        """Close every trial and remove the directory.

        Raises:
            OSError: The directory cannot be removed.
        """
        await self._control.stop()
        for probe in tuple(self._probes.values()):
            probe.cancel()
        for trial in tuple(self._trials):
            await self.close(trial)
        for provider in self._providers.values():
            provider.close()
        if self._is_made and self._directory.exists():  # what was there before us is not ours to remove
            remove_tree(self._directory)


class _Session:
    """One control connection, with at most one trial."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._trial: Trial | None = None

    async def answer(self, line: bytes) -> bytes:
        """Do what a line asks for; see `wire.lines.LineSession`."""
        try:
            return await self._obey(line)
        except FairtrialError as error:
            return render_error(self._gateway.redactor.redact_text(str(error)))

    async def _obey(self, line: bytes) -> bytes:
        match parse_message(line):
            case TrialOpening() as opening:
                if self._trial is not None:
                    raise UsageError("this connection has a trial; open another connection for another trial")
                self._trial, opened = await self._gateway.open(opening)
                return render_message(opened)
            case TrialClosing():
                if self._trial is None:
                    raise UsageError("this connection has no trial; open one first")
                trial, self._trial = self._trial, None
                try:
                    return render_message(await self._gateway.close(trial))
                except OSError as error:
                    raise HostError(f"the trial cannot be closed: {error}") from error
            case DirectoryReleasing(directory=directory):
                await self._gateway.release(Path(directory))
                return render_message(DirectoryReleased())
            case StatusAsked():
                self._gateway.probe()
                return render_message(self._gateway.status())
            case other:
                raise UsageError(f"{type(other).__name__} is an answer, not a request")

    async def end(self) -> None:
        """Close the trial of a worker that is gone."""
        trial, self._trial = self._trial, None
        if trial is not None:
            await self._gateway.close(trial)
