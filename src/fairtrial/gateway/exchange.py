"""One request from its head to its row: admitted or refused, passed on, metered, and hit by at most one fault."""

import errno
import hmac
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from fairtrial.gateway.dialect import Ask, Call, Dialect, ErrorKind, Rendered, ReplyReading, Route
from fairtrial.gateway.egress import BadRequestError, check_request, read_body, refusal_text, require_plain_head
from fairtrial.gateway.ledger import Ending, SeenCall, SeenResult
from fairtrial.gateway.outline import Outline, read_outline
from fairtrial.gateway.pace import Heard, News, read_status
from fairtrial.gateway.policy import ModelDecision, compare_models, decide_model
from fairtrial.gateway.sink import CutError, Sink
from fairtrial.gateway.source import Answer, Decoder, Outgoing
from fairtrial.gateway.spool import IN_MEMORY_BYTES, MAX_BODY_BYTES, Spool, TooLargeError
from fairtrial.gateway.state import TrialState
from fairtrial.model.usage import NOTHING_USED
from fairtrial.wire.faults import FaultKind, PlannedFault, take_due
from fairtrial.wire.http1 import BadMessageError, EndedEarlyError
from fairtrial.wire.loop import loop_s, sleep_s
from fairtrial.wire.serve import ClientGoneError, Incoming
from fairtrial.wire.upstream import UpstreamBrokenError, UpstreamUnreachableError

__all__ = ["Exchange"]

_MAX_ERROR_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 32 * 1024
_MAX_INPUT_CHARACTERS: Final = 2000
_MAX_NAME_CHARACTERS: Final = 500


class _Refused(Exception):  # noqa: N818 - not an error: an answer
    """The gateway answers by itself.

    Attributes:
        refusal: What for, see `WireRow.refusal`.
        status: HTTP status of the answer; none that clients try again.
        kind: What it means.
        refused: What exactly.
    """

    def __init__(
        self, refusal: str, status: int, kind: ErrorKind, message: str, *, refused: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.status = status
        self.kind = kind
        self.refused = refused


class Exchange:
    """One request of a trial.

    Attributes:
        row: What is known of it, kept up to date as it goes.
    """

    def __init__(self, trial: TrialState, incoming: Incoming) -> None:
        self._trial = trial
        self._incoming = incoming
        self._begun_s = loop_s()
        self._headers: Mapping[str, str] = dict(incoming.head.fields)
        self._sink = Sink(incoming, None)
        self.row = trial.new_row(method=incoming.head.method, path=incoming.head.target.partition("?")[0][:500])

    async def run(self) -> None:
        """Serve the request to its end and write its row.

        Raises:
            BadMessageError: The body's framing is broken.
            EndedEarlyError: The client left inside its request.
            OSError: The wire log cannot be written.
        """
        try:
            await self._serve()
        except (ClientGoneError, EndedEarlyError) as error:
            # codex leaves as soon as it has the last event, before the body's end: that reply was whole.
            if self.row.ending is not Ending.ANSWERED or self._sink.broken:
                self.row.ending = Ending.CLIENT_GONE
            self.row.detail = "the client left before the end" + (f": {error}" if str(error) else "")
            if self._sink.garbled:  # as a client may where it cannot read on
                self._break_by_plan("the reply was spoilt")
            if isinstance(error, EndedEarlyError):
                raise
        except BadMessageError as error:
            self.row.ending, self.row.refusal, self.row.detail = Ending.REFUSED, "http", str(error)
            raise
        except Exception as bug:  # noqa: BLE001 - the top of a request: our bug voids the trial, and others go on
            self.row.ending = Ending.INTERNAL
            self.row.detail = f"{type(bug).__name__}: {bug}"
            self._trial.fail(self.row.detail)
            if self._incoming.answered:
                self._incoming.break_off()
        finally:
            self.row.client_status = self._sink.status
            self.row.reply_bytes = self._incoming.n_reply_bytes
            self.row.fault_fired = self._sink.fired
            self.row.elapsed_ms = self._since_ms(self._begun_s)
            self._trial.finish(self.row, told_s=self._sink.replied_s)

    def _since_ms(self, start_s: float) -> float:
        return round((loop_s() - start_s) * 1000, 3)

    async def _serve(self) -> None:
        found = self._trial.find_route(self._incoming.head.method, self._incoming.head.target)
        if found is None:
            self.row.ending, self.row.refusal = Ending.REFUSED, "path"
            await self._sink.reply(404, (("content-type", "application/json"),), b'{"error":{"message":"not found"}}')
            return
        dialect, route = found
        self.row.dialect, self.row.ask = dialect.name, route.ask.value
        try:
            await self._admit(dialect, route)
        except _Refused as refusal:
            self.row.ending, self.row.refusal, self.row.refused = Ending.REFUSED, refusal.refusal, refusal.refused
            self.row.detail = str(refusal)
            await self._send(dialect.render_error(refusal.status, refusal.kind, str(refusal)))

    async def _send(self, rendered: Rendered) -> None:
        await self._sink.reply(rendered.status, tuple(rendered.headers.items()), rendered.body)

    async def _admit(self, dialect: Dialect, route: Route) -> None:
        """Answer what is the gateway's to answer, and take in the body of what may go on.

        Raises:
            _Refused: It may not.
        """
        if route.ask is Ask.PROBE:
            self.row.ending = Ending.LOCAL
            await self._sink.reply(200, (), b"")
            return
        token = dialect.read_token(self._incoming.head.target, self._headers)
        if not hmac.compare_digest((token or "").encode(), self._trial.token.encode()):
            raise _Refused("token", 401, ErrorKind.UNAUTHORIZED, "this is not the session's own API key")
        if dialect.name not in self._trial.opening.dialects:
            raise _Refused("dialect", 404, ErrorKind.NOT_FOUND, f"this session does not speak {dialect.name}")
        if route.ask is Ask.MODELS:
            self.row.ending = Ending.LOCAL
            await self._send(dialect.render_models(self._trial.opening.models))
            return
        rule = take_due(self._trial.faults, method=self.row.method, target=self.row.path)
        if rule is not None:
            self.row.fault = rule.fault.kind.value
            self._sink = Sink(self._incoming, rule)
        if rule is not None and rule.fault.kind is FaultKind.RST_CONNECT:
            self._break_by_plan("reset before the request was read")
            self._incoming.reset()
            return
        length = self._incoming.head.framing.n_bytes
        with Spool(self._trial.spool_directory) as spool:
            if length is not None and length <= IN_MEMORY_BYTES:
                await self._take_in(dialect, route, spool, rule)
            else:
                async with self._trial.large_bodies:
                    await self._take_in(dialect, route, spool, rule)

    def _break_by_plan(self, detail: str) -> None:
        self._sink.fire()
        self.row.ending, self.row.detail = Ending.BROKEN, f"planned fault: {detail}"

    async def _take_in(self, dialect: Dialect, route: Route, spool: Spool, rule: PlannedFault | None) -> None:
        """Read the body, judge it, and pass it on.

        Raises:
            _Refused: It may not go on.
        """
        try:
            require_plain_head(self._headers)
            await spool.fill(self._incoming.body())
            self.row.request_bytes = spool.n_bytes
            outline = await read_outline(spool.pieces()) if spool.is_large else None
            call = await self._judge(dialect, route, spool, outline)
        except TooLargeError:
            raise _Refused("body", 413, ErrorKind.TOO_LARGE, f"the body is over {MAX_BODY_BYTES} bytes") from None
        except BadRequestError as error:
            raise _Refused("body", 400, ErrorKind.BAD_REQUEST, str(error)) from error
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            # Large bodies fill the disk by themselves where little is left: a session must not end its own trial so.
            message = f"the body is too large for what is left of the disk ({os.strerror(error.errno)})"
            raise _Refused("body", 413, ErrorKind.TOO_LARGE, message) from error
        rule = rule or self._plan_of_script(call, dialect)
        cut_bytes = None
        match None if rule is None else rule.fault.kind:
            case FaultKind.RST_CONNECT:
                self._break_by_plan("reset before it went on")
                self._incoming.reset()
                return
            case FaultKind.DROP_BEFORE_FORWARD:
                self._break_by_plan("dropped before it went on")
                self._incoming.break_off()
                return
            case FaultKind.DROP_MID_REQUEST:
                cut_bytes = None if rule is None else rule.fault.parameter
            case FaultKind.DELAY if rule is not None:
                await self._incoming.while_present(sleep_s((rule.fault.parameter or 0) / 1000))
            case _:
                pass
        outgoing = Outgoing(dialect=dialect, call=call, headers=self._headers, body=spool, cut_bytes=cut_bytes)
        await self._incoming.while_present(self._pass_on(outgoing, rule))

    def _plan_of_script(self, call: Call, dialect: Dialect) -> PlannedFault | None:
        """The fault that a script has planned for this request."""
        fault = self._trial.source.plan_fault(call, dialect)
        if fault is None:
            return None
        rule = PlannedFault(fault=fault, n_matched=1)
        self.row.fault = fault.kind.value
        self._sink = Sink(self._incoming, rule)
        return rule

    async def _judge(self, dialect: Dialect, route: Route, spool: Spool, outline: Outline | None) -> Call:
        """Read the body and decide whether it may go on, changed if need be; return what it asks.

        Raises:
            BadRequestError: It cannot be read.
            _Refused: It may not go on.
        """
        trial, row = self._trial, self.row
        # Whoever plays a script or writes one reads the texts themselves.
        is_read = trial.source.reads_conversation or trial.opening.record is not None
        outline = None if is_read else outline
        body = read_body(spool.read_all() if outline is None else outline.data, max_bytes=MAX_BODY_BYTES)
        call = dialect.read_request(route, self._headers, body)
        row.requested_model, row.stream, row.digest = _short(call.requested_model), call.stream, call.digest
        row.session_claim, row.agent_claim = _short(call.session_claim), _short(call.agent_claim)
        row.parent_claim, row.effort = _short(call.parent_claim), _short(call.effort)
        row.tool_results = tuple(
            SeenResult(
                call_id=_short(each.call_id),
                name=_short(each.name),
                is_error=each.is_error,
                n_characters=len(each.text) if outline is None else outline.n_characters(each.text),
            )
            for each in call.new_results
        )
        row.n_tools, row.tools, row.n_turns = len(call.tools), call.tools, len(call.turns)
        row.attempt = trial.attempt_of(call.digest)
        row.backed_off_ms = round(trial.backed_off_s(call.digest, self._begun_s) * 1000, 3)
        refusals = check_request(dialect, route, body, grants=trial.opening.grants)
        if refusals:
            refused = tuple(f"{each.grant} {each.path}" for each in refusals)
            raise _Refused("egress", 400, ErrorKind.BAD_REQUEST, refusal_text(refusals), refused=refused)
        decision = decide_model(call.requested_model, trial.opening.models, trial.opening.unnamed_model)
        row.model_allowed = decision is ModelDecision.PASS
        if decision is ModelDecision.REFUSE:
            models = ", ".join(trial.opening.models)
            asked = f"it asked for {row.requested_model}" if row.requested_model else "it named none"
            message = f"this session may use {models} and no other model; {asked}"
            raise _Refused("model", 404, ErrorKind.NOT_FOUND, message)
        # After every refusal of what it asks: a body costs a session nothing, and looking through it costs every other.
        if trial.opening.markers:
            row.markers = await spool.words_in(trial.opening.markers)
        changed = dialect.with_usage_reported(body) if trial.opening.include_usage else None
        if changed is not None:
            row.usage_was_asked_for = True
            call = replace(call, reports_usage=True)
            rendered = trial.render_body(changed)
            if outline is None:
                spool.replace(rendered)
            else:
                spool.replace_large(outline.restored(rendered, spool))
        # A large conversation is not held while its reply is waited for; a small one is not worth a copy without it.
        return call if is_read or spool.n_bytes <= _SMALL_BYTES else replace(call, system="", turns=())

    async def _pass_on(self, outgoing: Outgoing, rule: PlannedFault | None) -> None:
        """Wait until the provider may be asked, ask, and give the place back.

        Raises:
            _Refused: A budget is exhausted.
        """
        trial, row = self._trial, self.row
        await trial.wait_for_place(row)
        told = News(what=Heard.NOTHING)
        try:
            if (exhausted := trial.exhausted_budget()) is not None:
                raise _Refused(
                    "budget",
                    400,
                    ErrorKind.BAD_REQUEST,
                    f"budget exhausted: {exhausted.message}; the session is over",
                    refused=(exhausted.kind.value,),
                )
            if rule is not None and rule.fault.kind is FaultKind.STATUS:
                heard = await self._answer_as_planned(outgoing.dialect, rule)
                # A fault that a trial planned says nothing of its provider; a script's does where that names one.
                told = told if rule in trial.faults else heard
            else:
                told = await self._ask(outgoing)
        finally:
            trial.give_place_back(told)

    async def _answer_as_planned(self, dialect: Dialect, rule: PlannedFault) -> News:
        """Play a provider that answers with an error."""
        status, retry_after_s = rule.fault.parameter or 503, rule.fault.retry_after_s
        self.row.status, self.row.ending, self.row.detail = status, Ending.ERROR_STATUS, "planned fault: status"
        self._trial.begin(self.row)
        rendered = dialect.render_error(status, _kind_of(status), f"planned fault: status {status}")
        extra = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
        await self._send(replace(rendered, headers={**rendered.headers, **extra}))
        self._sink.fire()
        return read_status(status, str(retry_after_s or ""))

    async def _ask(self, outgoing: Outgoing) -> News:
        """Ask whoever answers and pass the reply on."""
        trial, row = self._trial, self.row
        trial.begin(row)
        sent_s = loop_s()
        row.ending = Ending.STOPPED
        retry_after = ""
        try:
            async with trial.source.ask(outgoing) as answer:
                row.status, row.reused_connection = answer.status, answer.reused_connection
                row.first_byte_ms = self._since_ms(sent_s)
                retry_after = answer.header("retry-after")
                if answer.status >= 400:
                    await self._relay_error(answer)
                    trial.record(outgoing.call, answer.status, ReplyReading(usage=None))
                else:
                    await self._relay(outgoing, answer)
        except CutError:
            self._break_by_plan("the reply was cut")
        except UpstreamBrokenError as error:
            if isinstance(error, UpstreamUnreachableError):
                row.usage = NOTHING_USED  # known, and not a lower bound: nothing was sent
            if row.status is None and outgoing.cut_bytes is None:
                trial.record(outgoing.call, None, ReplyReading(usage=None))
            return await self._report_broken(outgoing, str(error))
        finally:
            row.provider_ms = self._since_ms(sent_s)
        return read_status(row.status or 0, retry_after)

    async def _report_broken(self, outgoing: Outgoing, detail: str) -> News:
        row = self.row
        row.ending, row.detail = Ending.BROKEN, detail
        if outgoing.cut_bytes is not None:
            self._break_by_plan("the request was cut")
            self._incoming.break_off()
            return News(what=Heard.NOTHING)
        if self._incoming.answered:
            self._incoming.break_off()
        else:
            message = f"the provider cannot be reached: {detail}"
            await self._send(outgoing.dialect.render_error(502, ErrorKind.PROVIDER, message))
        return News(what=Heard.FAILED, reason=detail)

    async def _relay_error(self, answer: Answer) -> None:
        """Pass an error on, without what it may quote of our key."""
        content = self._trial.redactor.redact(await _read_error(answer))
        fields = tuple((name, value) for name, value in answer.fields if name != "content-encoding")
        self.row.ending = Ending.ERROR_STATUS
        self.row.detail = content[:500].decode("utf-8", "replace")
        await self._sink.reply(answer.status, fields, content)

    async def _relay(self, outgoing: Outgoing, answer: Answer) -> None:
        """Pass a reply on as it comes, and read along."""
        meter = outgoing.dialect.meter(answer.header("content-type"))
        decoder = Decoder(answer.header("content-encoding"))
        ended, client_left = False, True
        try:
            await self._sink.begin(answer.status, answer.fields, n_bytes=answer.n_bytes)
            async for data in answer.pieces:
                for part in decoder.decode(data):
                    meter.feed(part)
                await self._sink.send(data)
            ended, client_left = True, False
        except UpstreamBrokenError:
            client_left = False
            raise
        finally:
            reading = meter.finish(body_ended=ended)
            self._note(reading, decoder, outgoing.call.route.ask, ended=ended)
            self._trial.record(outgoing.call, answer.status, reading, client_left=client_left)
        await self._sink.end()
        if self.row.ending is Ending.ANSWERED and self._sink.fired and self._sink.broken:
            self._break_by_plan("the reply was spoilt" if self._sink.garbled else "the reply was kept back")

    def _note(self, reading: ReplyReading, decoder: Decoder, ask: Ask, *, ended: bool) -> None:
        """Write down what the meter saw; who ended a reply that did not end by itself is known further up."""
        row = self.row
        is_call = ask is Ask.GENERATE
        row.usage = reading.usage if is_call else None
        row.price_context = reading.price_context
        row.served_model, row.reply_id, row.stop_reason = reading.served_model, reading.reply_id, reading.stop_reason
        row.served_as = compare_models(row.requested_model, row.served_model)
        row.tool_calls = tuple(
            SeenCall(
                id=each.id,
                name=each.name if each.namespace is None else f"{each.namespace}.{each.name}",
                input=None if each.input is None else self._trial.render_input(each.input)[:_MAX_INPUT_CHARACTERS],
                is_partial=each.is_partial,
            )
            for each in reading.tool_calls
        )
        if reading.error is not None:
            row.ending, row.error_kind, row.detail = Ending.ERROR_EVENT, reading.error.kind, reading.error.message
        elif reading.is_complete if is_call else ended:
            row.ending = Ending.ANSWERED
        elif ended and reading.is_too_large:
            # It came in order, and was too large for us alone: nobody failed, and what was seen of its cost is not it.
            row.ending, row.usage = Ending.ANSWERED, None
        elif ended:
            row.ending = Ending.BROKEN
            row.detail = decoder.problem or reading.problem or "the reply broke off before its end"
        if is_call and (row.usage is None or row.usage.is_lower_bound):
            problem = decoder.problem or reading.problem
            row.usage_problem = problem or ("the reply did not say" if row.usage is None else "the reply broke off")


async def _read_error(answer: Answer) -> bytes:
    """The first `_MAX_ERROR_BYTES` of an error, its content coding taken off."""
    decoder, content = Decoder(answer.header("content-encoding")), b""
    async for data in answer.pieces:
        for part in decoder.decode(data):
            content += part
            if len(content) >= _MAX_ERROR_BYTES:
                return content[:_MAX_ERROR_BYTES]
    return content


def _short(name: str | None) -> str | None:
    """A name that a client made up, as a row holds it: it stands there with every request."""
    return None if name is None else name[:_MAX_NAME_CHARACTERS]


def _kind_of(status: int) -> ErrorKind:
    match status:
        case 400:
            return ErrorKind.BAD_REQUEST
        case 401:
            return ErrorKind.UNAUTHORIZED
        case 403:
            return ErrorKind.FORBIDDEN
        case 404:
            return ErrorKind.NOT_FOUND
        case 413:
            return ErrorKind.TOO_LARGE
        case 429:
            return ErrorKind.RATE_LIMITED
        case 503 | 529:
            return ErrorKind.OVERLOADED
        case 408 | 504:
            return ErrorKind.TIMEOUT
        case _:
            return ErrorKind.PROVIDER if status >= 500 else ErrorKind.OTHER
