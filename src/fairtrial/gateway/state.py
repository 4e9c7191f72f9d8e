"""One open trial: what it may do, what it has spent, and its wire log."""

import secrets
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, time
from functools import cache
from pathlib import Path

from fairtrial.gateway.control import TrialClosed, TrialOpening
from fairtrial.gateway.dialect import Ask, Call, Dialect, JsonObject, ReplyReading, Role, Route, Turn
from fairtrial.gateway.dialects import DIALECTS, find_route
from fairtrial.gateway.fields import render_compact
from fairtrial.gateway.ledger import Ending, Ledger, WireRow, read_ledger
from fairtrial.gateway.pace import News
from fairtrial.gateway.pacer import Pacer
from fairtrial.gateway.policy import BudgetKind, BudgetStop, Spent, decide_budget
from fairtrial.gateway.price import price_table
from fairtrial.gateway.rates import price_quickly
from fairtrial.gateway.record import RecordedExchange, render_script, script_of
from fairtrial.gateway.source import Source
from fairtrial.gateway.totals import is_provider_fault, provider_fault, total_rows
from fairtrial.host.clock import rfc3339, utc_now
from fairtrial.host.files import write_durably
from fairtrial.store.redact import Redactor
from fairtrial.wire.faults import plan_faults
from fairtrial.wire.loop import Slots, loop_s

__all__ = ["TrialState", "new_token"]

_LARGE_BODIES = 4
_MAX_LOG_BYTES = 64 << 20
"""Of one trial: it is read again at the end, and a session must not fill the disk by it."""
_MAX_NAMED = 1000
"""Refused things that the trial's row names; its wire log has them all."""


def new_token() -> str:
    """A key for one session: it has the look of a key, and opens nothing."""
    return f"fairtrial-{secrets.token_urlsafe(24)}"


@cache
def _price_table_of(day: date) -> str:
    return str(price_table(datetime.combine(day, time.max, UTC)))


def _is_untold(row: WireRow) -> bool:
    """What a reply used is not known, and that is not the provider's fault: it did not say, or was left too early."""
    if row.ending is Ending.CLIENT_GONE:
        is_error = row.status is not None and row.status >= 400
        return not is_error and (row.usage is None or row.usage.is_lower_bound)
    return row.ending is Ending.ANSWERED and row.usage is None


def _named(refused: list[str]) -> tuple[str, ...]:
    more = len(refused) - _MAX_NAMED
    return (*refused[:_MAX_NAMED], f"and {more} more, see the wire log") if more > 0 else tuple(refused)


class TrialState:
    """One open trial.

    Attributes:
        opening: What was asked for.
        token: What its session must present.
        source: Who answers.
        redactor: Takes keys out of what is written.
        faults: Planned faults at work.
        spool_directory: Where large bodies go.
        large_bodies: Places for large bodies, of this trial alone.
        internal_error: The first failure of the gateway itself.
    """

    def __init__(
        self,
        opening: TrialOpening,
        *,
        source: Source,
        pacer: Pacer,
        redactor: Redactor,
        spool_directory: Path,
        max_refused: int,
    ) -> None:
        """Open the trial and its wire log.

        Raises:
            OSError: The wire log exists, or cannot be made.
        """
        self.opening = opening
        self.token = new_token()
        self.source = source
        self.redactor = redactor
        self.faults = plan_faults(opening.faults)
        self.spool_directory = spool_directory
        self.large_bodies = Slots(_LARGE_BODIES)
        self.internal_error: str | None = None
        self._dialects = tuple(DIALECTS[name] for name in opening.dialects)
        self._pacer = pacer
        self._ledger = Ledger(Path(opening.ledger), redactor)
        self._opened_s = loop_s()
        self._max_refused = max_refused
        self._n_refused = 0
        self._n_turned_away = 0
        self._n = 0
        self._failed: Counter[str] = Counter()
        self._failed_at_s: dict[str, float] = {}
        self._n_passed_on = 0
        self._tokens = 0
        self._cost_usd = 0.0
        self._n_unpriced = 0
        self._n_untold = 0
        self._exhausted: BudgetKind | None = None
        self._recorded: list[RecordedExchange] = []
        self._n_waiting = 0
        self._waiting_since_s = 0.0
        self._waited_s = 0.0

    def find_route(self, method: str, target: str) -> tuple[Dialect, Route] | None:
        """The dialect that knows a request line, one of the trial's own if possible, and how it reads it."""
        return find_route(method, target, dialects=self._dialects) or find_route(method, target)

    def new_row(self, *, method: str, path: str) -> WireRow:
        """The row of a new request."""
        self._n += 1
        return WireRow(n=self._n, trial=self.opening.trial, begun_utc=rfc3339(utc_now()), method=method, path=path)

    def attempt_of(self, digest: str) -> int:
        """Which try of this conversation this is, from 1."""
        return 1 + self._failed[digest]

    def backed_off_s(self, digest: str, begun_s: float) -> float:
        """Seconds between the last try of this conversation, if the provider failed it, and this one's head."""
        failed_at_s = self._failed_at_s.pop(digest, None)
        return 0.0 if failed_at_s is None else max(0.0, begun_s - failed_at_s)

    def exhausted_budget(self) -> BudgetStop | None:
        """The budget that lets no further request out, or None."""
        spent = Spent(
            tokens=self._tokens,
            cost_usd=self._cost_usd,
            n_unpriced=self._n_unpriced,
            n_untold=self._n_untold,
            requests=self._n_passed_on,
            seconds=loop_s() - self._opened_s - self.waited_s,
        )
        stop = decide_budget(self.opening.limits, spent)
        if stop is not None and self._exhausted is None:
            self._exhausted = stop.kind
        return stop

    def turns_away(self) -> bool:
        """Whether the session has asked for so much in vain that its next request is not even looked at.

        A flood of refused requests would fill disk and memory with rows, and end the gateway, and so its trial as void.
        """
        if self._n_refused < self._max_refused and self._ledger.n_bytes < _MAX_LOG_BYTES:
            return False
        self._n_turned_away += 1
        self._exhausted = self._exhausted or BudgetKind.REQUESTS
        return True

    @property
    def waited_s(self) -> float:
        """Seconds in which at least one request was held back for the provider's sake."""
        running_s = loop_s() - self._waiting_since_s if self._n_waiting else 0.0
        return self._waited_s + running_s

    async def wait_for_place(self, row: WireRow) -> None:
        """Wait until the provider may be asked, and note how long that took; also of one that does not get so far."""
        begun_s = loop_s()
        if self._pacer.try_place(self.source.name):
            return
        if not self._n_waiting:
            self._waiting_since_s = begun_s
        self._n_waiting += 1
        try:
            await self._pacer.wait_for_place(self.source.name)
        finally:
            self._n_waiting -= 1
            if not self._n_waiting:
                self._waited_s += loop_s() - self._waiting_since_s
            row.waited_ms = round((loop_s() - begun_s) * 1000, 3)

    def give_place_back(self, news: News) -> None:
        """Let the next one ask."""
        self._pacer.heard(self.source.name, news)

    def begin(self, row: WireRow) -> None:
        """Say in the wire log that a request goes out.

        Raises:
            OSError: The wire log cannot be written: the request must not go out.
        """
        self._ledger.begin(row)
        row.went_out = True
        self._n_passed_on += 1

    def _price(self, row: WireRow) -> None:
        """Set what a reply costs, once the client has it; the model that served is the one to be paid."""
        if row.usage is None:
            return
        now = utc_now()
        price = price_quickly(row.usage, row.served_model or row.requested_model, at=now, context=row.price_context)
        row.cost_usd = None if price.cost_usd is None else float(price.cost_usd)
        row.cost_without_cache_usd = (
            None if price.cost_without_cache_usd is None else float(price.cost_without_cache_usd)
        )
        row.cost_problem = price.reason
        row.price_table = _price_table_of(now.date())

    def record(self, call: Call, status: int | None, reading: ReplyReading, *, client_left: bool = False) -> None:
        """Take a reply down, or that there was none, if that was asked for."""
        if self.opening.record is None or call.route.ask is not Ask.GENERATE:
            return
        # Who speaks when, and the first words: more of a conversation is not needed, and it grows with each turn.
        first, *rest = call.turns or (Turn(role=Role.USER, text=""),)
        short = replace(call, system="", turns=(first, *(Turn(role=turn.role, text="") for turn in rest)))
        self._recorded.append(RecordedExchange(call=short, status=status, reading=reading, client_left=client_left))

    def _write_recording(self) -> None:
        path = self.opening.record
        if path is None or all(exchange.client_left for exchange in self._recorded):
            return
        script = script_of(self._recorded, redact=self.redactor.redact_text)
        write_durably(Path(path), self.redactor.redact(render_script(script)), mode=0o644)

    def render_body(self, body: JsonObject) -> bytes:
        """A changed body as it goes out."""
        return render_compact(body)

    def render_input(self, value: JsonObject) -> str:
        """A tool call's arguments for a row."""
        return render_compact(value).decode("utf-8", "replace")

    def fail(self, problem: str) -> None:
        """Note a failure of the gateway itself: the trial is void."""
        self.internal_error = self.internal_error or self.redactor.redact_text(problem)

    def finish(self, row: WireRow, *, told_s: float | None = None) -> None:
        """Price and count a request that has ended, and write its row. What goes wrong here voids the trial.

        Args:
            row: The request.
            told_s: When the client was told how it ended, on the loop's clock; None for now.

        Raises:
            OSError: The wire log cannot be written.
        """
        try:
            self._price(row)
            self._count(row, told_s)
            self._ledger.write(row)
        except Exception as error:
            self.fail(f"row {row.n} of {self._ledger.path}: {type(error).__name__}: {error}")
            raise

    def _count(self, row: WireRow, told_s: float | None) -> None:
        self._n_refused += not row.was_passed_on
        if row.digest is not None and row.ending is not Ending.ANSWERED and row.was_passed_on:
            self._failed[row.digest] += 1
            if is_provider_fault(row):
                # Not now: the client may have been at its rest for a while before this process went on.
                self._failed_at_s[row.digest] = loop_s() if told_s is None else told_s
        if row.usage is not None:
            usage = row.usage
            counts = (usage.uncached_input, usage.cache_write, usage.cache_read, usage.output)
            self._tokens += sum(count or 0 for count in counts)
        self._cost_usd += row.cost_usd or 0.0
        if row.ending is Ending.ANSWERED and row.ask == "generate" and row.cost_usd is None:
            self._n_unpriced += 1
        self._n_untold += row.went_out and row.ask == "generate" and _is_untold(row)

    def close(self) -> TrialClosed:
        """Close the wire log and say what is in it.

        Raises:
            OSError: The wire log cannot be made durable, or be read again.
        """
        if self._n_turned_away:
            row = self.new_row(method="", path="")
            row.ending, row.refusal, row.refused = Ending.REFUSED, "budget", (BudgetKind.REQUESTS.value,)
            row.detail = (
                f"this and {self._n_turned_away - 1} more requests were turned away unread: too many were refused"
            )
            self.finish(row)
        digest = self._ledger.close()
        self._write_recording()
        rows = list(read_ledger(self._ledger.path))
        return TrialClosed(
            totals=total_rows(rows),
            ledger=str(self._ledger.path),
            ledger_sha256=digest,
            egress_refused=_named([each for row in rows if row.refusal == "egress" for each in row.refused]),
            waited_ms=round(self.waited_s * 1000, 3),
            budget_exhausted=self._exhausted,
            provider_fault=provider_fault(rows),
            markers_seen=tuple(marker for marker in self.opening.markers if any(marker in row.markers for row in rows)),
            faults_as_planned=all(rule.report().as_planned for rule in self.faults),
            internal_error=self.internal_error,
        )
