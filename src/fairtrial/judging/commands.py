"""What is started in a judge's sandbox: a shipped runner, or the oracle's command in a shell nobody can look into.

Pure but for reading our own scripts.
"""

import json
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from fairtrial.errors import UsageError
from fairtrial.host.payload import payload_file
from fairtrial.judging.proof import NONCE_FD, PROOF_FD
from fairtrial.judging.stage import ORACLE_ROOT, target_inside
from fairtrial.judging.values import Isolation, OracleSpec, Runner
from fairtrial.model.sandbox import WORKSPACE, File

__all__ = [
    "CANDIDATE",
    "CANDIDATE_SOCKET",
    "NOT_CLOSED",
    "NO_PROGRAM",
    "Command",
    "candidate_client",
    "candidate_host",
    "oracle_environment",
    "runner_command",
    "shell_command",
]

NOT_CLOSED: Final = 125
NO_PROGRAM: Final = 127
_HERE: Final = "/fairtrial"
CANDIDATE: Final = f"{_HERE}/candidate"
CANDIDATE_SOCKET: Final = f"{_HERE}/candidate.sock"
_SCRIPTS: Final = (
    "test_runner.py",
    "pytest_child.py",
    "unittest_child.py",
    "node_child.mjs",
    "node_reporter.mjs",
    "node_words.cjs",
    "cargo_child.py",
    "cargo_end.c",
)
_ROOT_VARIABLE: Final = "FAIRTRIAL_ORACLE_ROOT"
_PYTEST_SETTINGS: Final = ("-c", "--config-file", "--rootdir")
_PROLOGUE: Final = f"IFS= read -r FAIRTRIAL_NONCE <&{NONCE_FD}; exec {NONCE_FD}<&-\n"


class Command(NamedTuple):
    """What is started, and the files that it needs.

    Attributes:
        argv: Program and arguments.
        files: Files of ours that are there only for it.
    """

    argv: tuple[str, ...]
    files: tuple[File, ...]


def oracle_environment(oracle: OracleSpec) -> dict[str, str]:
    """The variables that an oracle gets."""
    variables = {_ROOT_VARIABLE: ORACLE_ROOT, "FAIRTRIAL_PROOF_FD": str(PROOF_FD)}
    if oracle.isolation is Isolation.PROCESS:
        variables["FAIRTRIAL_CANDIDATE"] = CANDIDATE
    return variables if oracle.runner is None else {**variables, "FAIRTRIAL_NONCE_FD": str(NONCE_FD)}


def candidate_client() -> File:
    """What an oracle calls to have a command run in the candidate's sandbox."""
    return payload_file(CANDIDATE, script="candidate.py", mode=0o555)


def candidate_host() -> Command:
    """What runs commands in the candidate's sandbox."""
    host = payload_file(f"{_HERE}/candidate_host.py")
    return Command(("/usr/bin/python3", "-I", "-S", host.target), (host,))


def runner_command(oracle: OracleSpec, runner: Runner, settings: bytes | None) -> Command:
    """Start a shipped runner.

    Args:
        oracle: What it shall run.
        runner: Which.
        settings: pytest's settings file, relative to the workspace.

    Raises:
        UsageError: The arguments cannot be split into words.
    """
    try:
        arguments = [word.replace(f"${_ROOT_VARIABLE}", ORACLE_ROOT) for word in shlex.split(oracle.command)]
    except ValueError as problem:
        raise UsageError(f"oracle: {oracle.command!r} cannot be split into arguments: {problem}") from problem
    if settings is not None and not _names_settings(arguments):
        arguments = ["-c", f"{WORKSPACE}/{settings.decode()}", f"--rootdir={WORKSPACE}", *arguments]
    plan = {
        "kind": runner,
        "arguments": arguments,
        "files": [target_inside(file) for file in oracle.files],
        "expect_tests": oracle.expect_tests,
        "here": _HERE,
    }
    files = [payload_file(f"{_HERE}/{name}") for name in _SCRIPTS]
    files.append(File(target=f"{_HERE}/plan.json", content=json.dumps(plan).encode()))
    argv = ("/usr/bin/python3", "-I", "-S", f"{_HERE}/test_runner.py", f"{_HERE}/plan.json")
    return Command(argv, tuple(files))


def _names_settings(arguments: Sequence[str]) -> bool:
    return any(word == name or word.startswith(f"{name}=") for word in arguments for name in _PYTEST_SETTINGS)


def shell_command(text: str) -> Command:
    """Start a command of the oracle's own.

    It finds the nonce in a shell variable that no child inherits. The shell is a copy that can be executed but not
    read, so the kernel lets nobody read the memory and the descriptors of the process either.
    """
    shell = File(target=f"{_HERE}/sh", content=_shell(), mode=0o111)
    return Command((shell.target, "-c", _PROLOGUE + text), (shell,))


@cache
def _shell() -> bytes:
    return Path("/bin/sh").read_bytes()
