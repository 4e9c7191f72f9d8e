"""`fairtrial doctor`: what this host can do, with remedies."""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, cast

import click

from fairtrial.bench.index import find_context
from fairtrial.cli.output import print_json
from fairtrial.errors import FairtrialError, HostError
from fairtrial.host.files import free_bytes
from fairtrial.host.lock import HOST_LOCK_PATH, acquire_lock
from fairtrial.host.machine import filesystem_of
from fairtrial.host.namespace import Isolation, probe_isolation
from fairtrial.host.unplaced import home_above
from fairtrial.model.agent import AgentProbe
from fairtrial.model.loop import Variant
from fairtrial.plugins import load_plugin, plugin_names
from fairtrial.protocols import Agent
from fairtrial.report.text import visible
from fairtrial.store.reserve import LOW_SPACE_BYTES
from fairtrial.sweep.resolve import find_subjects
from fairtrial.sweep.scratch import scratch_base
from fairtrial.sweep.task_look import look_at_sandboxes, look_at_tasks

__all__ = ["Check", "Status", "command", "look"]

LITTLE_SPACE_BYTES: Final = 1 << 30


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    NOTE = "note"
    CANNOT = "cannot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        status: `note` does not stop a sweep; `cannot` does.
        found: What was seen.
        remedy: What to do about it, "" when nothing is to be done.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


@click.command("doctor")
@click.option(
    "--scratch",
    type=click.Path(path_type=Path),
    help="The scratch directory to look at [default: $TMPDIR, else /var/tmp].",
)
@click.option("--tasks", type=click.Path(path_type=Path), help="Try the authored check of each task on its base.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(*, scratch: Path | None, tasks: Path | None, as_json: bool) -> int:
    """Look at everything a sweep needs of this host before it begins; exit code 3 when something is missing."""
    checks = (*look(scratch), *(() if tasks is None else _tasks(tasks, scratch)))
    able = all(check.status is not Status.CANNOT for check in checks)
    if as_json:
        print_json({"schema": "doctor/1", "able": able, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            remedy = f" -> {check.remedy}" if check.remedy else ""
            click.echo(f"{check.status:6} {check.name}: {check.found}{remedy}")
    return 0 if able else HostError.exit_code


def look(scratch: Path | None) -> Iterator[Check]:
    """All checks, in the order a sweep would fail on them."""
    yield Check(name="python", status=Status.OK, found=f"{sys.version.split()[0]} at {sys.executable}")
    yield _isolation()
    yield _lock()
    yield _scratch(scratch)
    yield from _subjects()
    yield from _agents()
    yield from _contexts()
    yield _bubblewrap()
    yield _limits(scratch)


def _limits(scratch: Path | None) -> Check:
    try:
        seen = look_at_sandboxes(scratch_base(scratch))
    except HostError as problem:
        return Check(name="sandboxes", status=Status.NOTE, found=f"{problem} (the tool lane needs none)")
    limits = ", ".join(f"{limit} by {mechanism}" for limit, mechanism in seen.mechanisms.items())
    uids = (
        "a uid of its own" if seen.has_judge_uid else "the same uid as what it judges (root's sweeps give it another)"
    )
    found = f"they work; limits: {limits}; an oracle with `isolation: process` has {uids}"
    return Check(name="sandboxes", status=Status.OK, found=found)


def _tasks(path: Path, scratch: Path | None) -> Iterator[Check]:
    for seen in look_at_tasks(path, scratch_base(scratch)):
        name = f"task {seen.task}"
        base = f"the base (commit {seen.commit[:12]}: what is not committed is not there)"
        if seen.problem is not None:
            remedy = "install it, or name its directory in the task's toolchains" if seen.missing else ""
            yield Check(name=name, status=Status.CANNOT, found=seen.problem, remedy=remedy)
        elif seen.passes:
            yield Check(name=name, status=Status.OK, found=f"its authored check passes on {base}")
        else:
            lacks = f"; it says that {seen.missing} is missing" if seen.missing else ""
            last = seen.detail.rpartition("\n")[2]
            found = f"its authored check fails on {base}{lacks}" + (f"; its last line: {visible(last)}" if last else "")
            yield Check(name=name, status=Status.NOTE, found=found, remedy="fine where the task is to make it pass")


def _isolation() -> Check:
    probe = probe_isolation()
    if probe.isolation is Isolation.PID_NAMESPACE:
        return Check(name="worker isolation", status=Status.OK, found="a user and PID namespace for each worker")
    return Check(
        name="worker isolation",
        status=Status.NOTE,
        found=f"namespaces are refused ({probe.reason}); workers use a parent-death signal and a janitor",
        remedy="allow unprivileged user namespaces (sysctl user.max_user_namespaces)",
    )


def _lock() -> Check:
    try:
        with acquire_lock(HOST_LOCK_PATH, wait_s=0, on_wait=lambda _holder: None):
            return Check(name="measurement lock", status=Status.OK, found=f"{HOST_LOCK_PATH} is free")
    except HostError as problem:
        return Check(
            name="measurement lock", status=Status.NOTE, found=str(problem), remedy="wait for the other measurement"
        )


def _scratch(asked: Path | None) -> Check:
    try:
        base = scratch_base(asked)
    except HostError as problem:
        return Check(name="scratch", status=Status.CANNOT, found=str(problem))
    filesystem, free = filesystem_of(base), free_bytes(base)
    found = f"{base} on {filesystem.type}, {free // (1 << 20)} MiB free"
    if free < LITTLE_SPACE_BYTES:
        status = Status.CANNOT if free < LOW_SPACE_BYTES else Status.NOTE
        return Check(
            name="scratch", status=status, found=found, remedy="free some space or name another with --scratch"
        )
    if home_above(base) is not None:
        told = f"{found}; every session can read this path, which may name a user"
        return Check(name="scratch", status=Status.NOTE, found=told, remedy="name a place outside homes with --scratch")
    return Check(name="scratch", status=Status.OK, found=found)


def _subjects() -> Iterator[Check]:
    usable = 0
    for name in plugin_names("fairtrial.subjects"):
        label = f"subject {name}"
        try:
            (subject,) = find_subjects([Variant(name=name, subject=name, label=name)])
        except FairtrialError as problem:
            yield Check(name=label, status=Status.NOTE, found=str(problem))
            continue
        if subject.probe.missing is None:
            usable += 1
            yield Check(name=label, status=Status.OK, found=f"{subject.probe.version} at {subject.probe.binary}")
        else:
            yield Check(name=label, status=Status.NOTE, found=subject.probe.missing)
    if not usable:
        yield Check(
            name="subjects", status=Status.CANNOT, found="no subject can run here", remedy="apt-get install git"
        )


def _agents() -> Iterator[Check]:
    for name in plugin_names("fairtrial.agents"):
        label = f"agent {name}"
        try:
            agent = cast("type[Agent]", load_plugin("fairtrial.agents", name).target)()
            probe = agent.probe()
        except FairtrialError as problem:
            yield Check(name=label, status=Status.NOTE, found=str(problem))
            continue
        yield _agent(label, agent, probe)


def _agent(label: str, agent: Agent, probe: AgentProbe) -> Check:
    """What is installed of an agent, which version was tested, and what installs that."""
    tested = "" if agent.tested_version is None else f"; tested: {agent.tested_version}"
    if probe.missing is not None:
        reason = probe.missing.removesuffix(f"; install it: {agent.install}")
        return Check(name=label, status=Status.NOTE, found=f"not usable: {reason}{tested}", remedy=agent.install)
    found = f"{probe.version or 'no version'} at {probe.binary}{tested}"
    if untested := probe.details.get("untested"):
        return Check(name=label, status=Status.NOTE, found=f"{found}; {untested}", remedy=agent.install)
    binds = () if probe.installation is None else probe.installation.binds
    if told := [bind.target for bind in binds if home_above(Path(bind.target)) is not None]:
        told_of = f"{found}; every session can read the path {', '.join(told)}, which may name a user"
        return Check(name=label, status=Status.NOTE, found=told_of, remedy="install what lies there outside homes")
    return Check(name=label, status=Status.OK, found=f"{found}; installed by: {agent.install}")


def _contexts() -> Iterator[Check]:
    for name in plugin_names("fairtrial.contexts"):
        label = f"context {name}"
        try:
            found = find_context(name)
        except FairtrialError as problem:
            yield Check(name=label, status=Status.NOTE, found=str(problem).removeprefix(f"{label}: "))
            continue
        licence = f"; {found.context.licence}" if found.context.licence else ""
        if untested := found.probe.details.get("untested"):
            yield Check(name=label, status=Status.NOTE, found=f"{found.probe.version}; {untested}{licence}")
        else:
            yield Check(name=label, status=Status.OK, found=f"{found.probe.version}, the tested version{licence}")


def _bubblewrap() -> Check:
    found = shutil.which("bwrap", path=os.environ.get("PATH"))
    if found is None:
        missing = "not on PATH (the tool lane does not need it)"
        return Check(name="bubblewrap", status=Status.NOTE, found=missing, remedy="apt-get install bubblewrap")
    return Check(name="bubblewrap", status=Status.OK, found=found)
