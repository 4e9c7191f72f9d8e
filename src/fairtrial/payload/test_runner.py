"""Runs an oracle's tests as a child, counts what they report, and proves that it finished.

    python3 -I -S test_runner.py PLAN

PLAN is a JSON file: `kind` (pytest, unittest, node, go, cargo), `arguments` for it, `files` (absolute paths of the
oracle's own files: only their tests count), `expect_tests` (a number or null), `here` (the directory of the files that
run in the child). Descriptors: FAIRTRIAL_NONCE_FD is read to its end; FAIRTRIAL_PROOF_FD gets one line, the nonce and
the counts as JSON, once the child has ended and its report is sound. The child has neither: nobody without
CAP_SYS_PTRACE can look into this process, which tells the kernel so before it starts anything.

pytest, unittest and node report over a socket pair, each line with a code made of a key that the part of ours which
runs in the child reads before anything else is loaded: of these three nothing that a test prints, or writes into a
file, is a report. go and cargo have no such door: of these two what is printed about tests of the oracle's own files
counts, where the exit status agrees. A binary of cargo's that holds them must have come to its end besides, which our
part in it tells with such a key, so that leaving after printing is no success; a test process of go's that prints in
the form it has there and leaves by a system call is believed.

Exit codes: 0 all expected tests ran and passed; 1 they did not; 3 there is no report that can be believed; 2 wrong
usage; 125 the kernel refuses to close this process to others; 127 the program that runs the tests is missing. Runs on
the system's Python 3.9 or newer with nothing but the standard library, and is imported by nobody.
"""

# `typing.override` is younger than the Pythons that this runs on.
# mypy: disable-error-code="explicit-override"

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "Counts",
    "Ended",
    "GoTally",
    "Plan",
    "Report",
    "RustTally",
    "Tally",
    "add_up",
    "as_regex",
    "below",
    "cargo_end",
    "cargo_host",
    "close_to_others",
    "complain",
    "find",
    "go_package",
    "hear",
    "main",
    "nearest",
    "node_files",
    "own_tests",
    "python_child",
    "read_all",
    "run_cargo",
    "run_go",
    "run_node",
    "run_pytest",
    "run_reading",
    "run_reporting",
    "run_unittest",
    "rust_sources",
    "unfold",
]

FAILED, BAD_USAGE, NOT_BELIEVED, NOT_CLOSED, NOT_FOUND = 1, 2, 3, 125, 127
PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4
LONGEST_LINE = 1 << 16
MOST_REPORT_BYTES = 64 << 20
GO_TEST = re.compile(r"^func (Test\w*)\(", re.MULTILINE)
RUST_TEST = re.compile(r"#\[(?:\w+::)*test\b[^\]]*\](?:\s*#\[[^\]]*\])*\s*(?:pub(?:\([^)]*\))? )?(?:async )?fn (\w+)")
GO_MODULE = re.compile(r"^module\s+\"?([^\s\"]+)", re.MULTILINE)
RUST_BINARY = re.compile(rb"^\s+Running .* \((.+)\)$")
GO_ENDINGS = {"pass": "passed", "fail": "failed", "skip": "skipped"}
RUST_ENDINGS = {b"ok": "passed", b"FAILED": "failed", b"ignored": "skipped"}
NODE_REFUSED = re.compile(
    r"-r$|--(?:require|env-file|env-file-if-exists|loader|experimental-loader|test-reporter)(?:=|$)"
)
NODE_TESTS = ("*.test", "*-test", "*_test", "test-*", "test", "test/**/*")
BRACES = re.compile(r"\{([^{}]*)\}")
WILDCARD = re.compile(r"(\*\*/|\*\*|\*|\?)")
WILD = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
ORDER = ("passed", "skipped", "failed")
RUST_LINE = re.compile(rb"^test (?:\S+::)?(\w+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)")


class Plan(TypedDict):
    """What to run."""

    kind: str
    arguments: list[str]
    files: list[str]
    expect_tests: int | None
    here: str


class Counts(NamedTuple):
    """Tests of the oracle's own files."""

    n_passed: int
    n_failed: int
    n_skipped: int


class Ended(NamedTuple):
    """A child that has ended: its exit status, and what it reported; None when that cannot be believed."""

    returncode: int
    counts: Counts | None


def close_to_others() -> bool:
    """Forbid others of the same user to read our memory, environment and descriptors."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    still_open: int = libc.prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    return still_open == 0


def read_all(fd: int) -> bytes:
    """Read a descriptor to its end and close it."""
    with os.fdopen(fd, "rb") as file:
        return file.read()


class Report:
    """What the part of ours in the child sends: counted when sound, refused as a whole when not."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._unread = b""
        self._n_lines = 0
        self._n_bytes = 0
        self._ended = False
        self._forged = False
        self._tally: dict[str, int] = {"passed": 0, "failed": 0, "skipped": 0}

    def take(self, data: bytes) -> None:
        """Take some bytes."""
        self._n_bytes += len(data)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._take_line(line)
        if len(self._unread) > LONGEST_LINE or self._n_bytes > MOST_REPORT_BYTES:
            self._forged, self._unread = True, b""

    def _take_line(self, line: bytes) -> None:
        code, _, said = line.partition(b" ")
        wanted = hmac.new(self._key, b"%d %s" % (self._n_lines, said), hashlib.sha256).hexdigest()
        self._n_lines += 1
        if self._ended or not hmac.compare_digest(code, wanted.encode()):
            self._forged = True
        elif said == b"end":
            self._ended = True
        elif said.decode(errors="replace") in self._tally:
            self._tally[said.decode()] += 1
        else:
            self._forged = True

    def counts(self) -> Counts | None:
        """Return what was counted; None when the report is forged, broken off, or not complete."""
        if self._forged or self._unread or not self._ended:
            return None
        return Counts(self._tally["passed"], self._tally["failed"], self._tally["skipped"])


def run_reporting(argv: Sequence[str], env: dict[str, str]) -> Ended:
    """Run a child whose inner part of ours reports over a socket pair, whose number it finds in its environment."""
    ours, theirs = socket.socketpair()
    key = secrets.token_bytes(32)
    with ours:
        with theirs:
            ours.sendall(key)
            env = {**env, "FAIRTRIAL_REPORT_FD": str(theirs.fileno())}
            child = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        report = Report(key)
        pidfd = os.pidfd_open(child.pid)
        listening = True
        while True:
            ready, _, _ = select.select([ours.fileno(), pidfd] if listening else [pidfd], [], [])
            if ours.fileno() in ready:
                listening = hear(ours, report)
            elif pidfd in ready:
                break
        os.close(pidfd)
        # Whoever still holds the other end has nothing to say any more.
        ours.shutdown(socket.SHUT_RD)
        while listening:
            listening = hear(ours, report)
    return Ended(child.wait(), report.counts())


def hear(channel: socket.socket, report: Report) -> bool:
    """Read once; False at the end."""
    try:
        data = channel.recv(LONGEST_LINE)
    except ConnectionResetError:  # it ended without having read its key
        return False
    report.take(data)
    return data != b""


def run_pytest(plan: Plan, env: dict[str, str]) -> Ended:
    """Run pytest with our reporter in it."""
    return run_reporting(python_child(plan, "pytest_child.py"), env)


def run_unittest(plan: Plan, env: dict[str, str]) -> Ended:
    """Run unittest with our result class."""
    return run_reporting(python_child(plan, "unittest_child.py"), env)


def python_child(plan: Plan, name: str) -> list[str]:
    """Isolated: neither the directory it is started in nor a variable may put a module before the real ones."""
    program = find("python3", "python")
    return [program, "-I", f"{plan['here']}/{name}", json.dumps(plan["files"]), *plan["arguments"]]


def run_node(plan: Plan, env: dict[str, str]) -> Ended:
    """Run node's tests, each file in a process of its own with our reporter in it.

    node's own `--test` is not used: it takes for a report what the processes of the files print.
    """
    env = {**env, "FAIRTRIAL_REPORT_FILES": json.dumps(plan["files"])}
    env.pop("NODE_OPTIONS", None)
    program, here = find("node"), plan["here"]
    asked = subprocess.run(
        [program, "--require", f"{here}/node_words.cjs", *plan["arguments"]],
        env=env,
        stdout=subprocess.PIPE,
        check=False,
    )
    if asked.returncode != 0:
        return Ended(asked.returncode, Counts(0, 0, 0))
    options, words = json.loads(asked.stdout)
    if refused := [word for word in options if NODE_REFUSED.match(word)]:
        complain(f"node: {refused[0]} would come before what counts the tests, or in its place; use --import, or none")
        return Ended(BAD_USAGE, Counts(0, 0, 0))
    own = ["--import", f"{here}/node_child.mjs", "--test-reporter", f"{here}/node_reporter.mjs"]
    own += ["--test-reporter-destination", "stdout", *(word for word in options if word != "--test")]
    files = node_files(words, plan["files"])
    ended = [run_reporting([program, *own, file], env) for file in files]
    return Ended(max((abs(each.returncode) for each in ended), default=FAILED), add_up(each.counts for each in ended))


def add_up(all_counts: Iterable[Counts | None]) -> Counts | None:
    """Return the sum; None when one is missing, or all."""
    whole: Counts | None = None
    for counts in all_counts:
        if counts is None:
            return None
        n_passed, n_failed, n_skipped = whole or (0, 0, 0)
        whole = Counts(n_passed + counts.n_passed, n_failed + counts.n_failed, n_skipped + counts.n_skipped)
    return whole


def node_files(words: Sequence[str], own: Sequence[str]) -> list[str]:
    """Find the test files that are meant: paths, directories and patterns. None when a word means none."""
    typed = any(path.endswith((".ts", ".mts", ".cts")) for path in own)
    names = [f"**/{name}.{{c,m,}}{'{j,t}' if typed else 'j'}s" for name in NODE_TESTS]
    there = sorted({*below(os.getcwd()), *own})  # noqa: PTH109 - text is wanted
    found: dict[str, None] = {}
    for word in words or ["."]:
        path = os.path.abspath(word)  # noqa: PTH100 - it may be a pattern
        patterns = [f"{path}/{name}" for name in names] if Path(path).is_dir() else [path]
        wanted = re.compile("|".join(as_regex(each) for pattern in patterns for each in unfold(pattern)))
        files = [path] if Path(path).is_file() else [each for each in there if wanted.fullmatch(each)]
        if not files:
            complain(f"no test file is meant by {word!r}")
            return []
        found.update(dict.fromkeys(files))
    return list(found)


def below(root: str) -> Iterator[str]:
    """All files below a directory but those of installed packages; links are not followed, as those of a workspace."""
    for directory, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in {"node_modules", ".git"}]
        yield from (f"{directory}/{name}" for name in names)


def unfold(pattern: str) -> list[str]:
    """Spell out the alternatives in braces."""
    match = BRACES.search(pattern)
    if match is None:
        return [pattern]
    return [
        each
        for choice in match[1].split(",")
        for each in unfold(f"{pattern[: match.start()]}{choice}{pattern[match.end() :]}")
    ]


def as_regex(pattern: str) -> str:
    """A pattern of paths as a regular expression."""
    return "".join(WILD.get(part, re.escape(part)) for part in WILDCARD.split(pattern))


def run_reading(argv: Sequence[str], env: dict[str, str], take: Tally, *, pass_fds: Sequence[int] = ()) -> Ended:
    """Run a child whose output is its report; both streams in one, since their order tells what belongs to what."""
    out, theirs = os.pipe()
    child = subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, pass_fds=tuple(pass_fds)
    )
    os.close(theirs)
    pidfd = os.pidfd_open(child.pid)
    os.set_blocking(out, False)
    unread, listening, ended = b"", True, False
    while listening and not ended:
        ready, _, _ = select.select([out, pidfd], [], [])
        ended = pidfd in ready  # looked at before the last read, so that nothing written before the end is missed
        while listening:
            try:
                data = os.read(out, LONGEST_LINE)
            except BlockingIOError:
                break
            listening = data != b""
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                take.line(line)
            unread = unread[-LONGEST_LINE:]
    os.close(pidfd)
    os.close(out)
    return Ended(child.wait(), take.counts())


class Tally:
    """Counts the tests that stand in the oracle's own files, each by its worst ending.

    Where a test stands counts as well as its name: others of the same name elsewhere prove nothing.
    """

    def __init__(self, own: Sequence[tuple[str, str]]) -> None:
        self._own = frozenset(own)
        self._endings: dict[tuple[str, str], str] = {}

    def line(self, line: bytes) -> None:
        """Take one line of output."""
        raise NotImplementedError

    def note(self, place: str, name: str, ending: str) -> None:
        """Note how one test of one place ended."""
        key = (place, name)
        if key in self._own:
            self._endings[key] = max(ending, self._endings.get(key, ending), key=ORDER.index)

    def fail(self, place: str) -> None:
        """Note that the tests of one place were not run to their end."""
        for key in self._own:
            if key[0] == place:
                self._endings[key] = "failed"

    def counts(self) -> Counts:
        """Return what was counted."""
        endings = list(self._endings.values())
        return Counts(endings.count("passed"), endings.count("failed"), endings.count("skipped"))


class GoTally(Tally):
    """Reads `go test -json`."""

    def line(self, line: bytes) -> None:
        """Take one event."""
        try:
            event: object = json.loads(line)
        except ValueError:
            return  # of the build, or cut off: nothing that counts
        if not isinstance(event, dict):
            return
        said = {str(name): str(value) for name, value in event.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if said.get("Action") in GO_ENDINGS and "Test" in said:
            self.note(said.get("Package", ""), said["Test"], GO_ENDINGS[said["Action"]])


class RustTally(Tally):
    """Reads cargo's and libtest's lines. A binary's tests count once its closing line says that it came to its end.

    Which file a binary is made of is known from its build: what cargo prints of it is the same for any package.
    """

    def __init__(self, own: Sequence[tuple[str, str]], sources: Mapping[str, str]) -> None:
        super().__init__(own)
        self._sources = sources
        self._place: str | None = None
        self._ended = False
        self._open: list[re.Match[bytes]] = []

    def line(self, line: bytes) -> None:
        """Take one line."""
        if match := RUST_BINARY.match(line):
            self._begin(self._sources.get(os.path.realpath(os.fsdecode(match[1]))))
        elif line.lstrip().startswith(b"Doc-tests "):
            self._begin(None)
        elif match := RUST_LINE.match(line):
            self._open.append(match)
        elif line.startswith(b"test result: "):
            self._ended = True
            self._note_open()

    def _begin(self, place: str | None) -> None:
        if self._place is not None and not self._ended:
            self.fail(self._place)
        self._note_open()  # what comes behind a closing line makes its tests no better
        self._place, self._ended = place, False

    def _note_open(self) -> None:
        if self._place is not None:
            for each in self._open:
                self.note(self._place, each[1].decode(), RUST_ENDINGS[each[2]])
        self._open.clear()

    def counts(self) -> Counts:
        """Return what was counted, once there is no more."""
        self._begin(None)
        return super().counts()


def run_go(plan: Plan, env: dict[str, str]) -> Ended:
    """Run go's tests; neither its settings file, nor the workspace's wish for another toolchain counts."""
    env = {**env, "GOENV": "off", "GOTOOLCHAIN": "local"}
    argv = [find("go"), "test", "-json", "-count=1", *plan["arguments"]]
    return run_reading(argv, env, GoTally(own_tests(plan, ".go", GO_TEST, go_package)))


def run_cargo(plan: Plan, env: dict[str, str]) -> Ended:
    """Run cargo's tests; a wish for quiet is not heard, since what it hides are the tests' names.

    The binaries of the oracle's own files are started by `cargo_child.py`, which tells their end from an exit.
    """
    env = {**env, "CARGO_TERM_COLOR": "never", "CARGO_TERM_QUIET": "false"}
    library = cargo_end(plan["here"])  # before anything of the workspace runs, such as a build script
    arguments = [word for word in plan["arguments"] if word not in {"-q", "--quiet"}]
    argv = [find("cargo"), "test", "--offline", "--no-fail-fast", *arguments]
    of_cargo = argv[: argv.index("--")] if "--" in argv else argv
    built = subprocess.run(
        [*of_cargo, "--no-run", "--message-format=json-render-diagnostics"],
        env=env,
        stdout=subprocess.PIPE,
        check=False,
    )
    if built.returncode != 0:
        return Ended(built.returncode, Counts(0, 0, 0))
    sources, files = rust_sources(built.stdout), {os.path.realpath(path) for path in plan["files"]}
    binaries = os.pathsep.join(binary for binary, source in sources.items() if source in files)
    child = [sys.executable, "-I", "-S", f"{plan['here']}/cargo_child.py", binaries or "-", str(library)]
    env[f"CARGO_TARGET_{cargo_host(argv[0])}_RUNNER"] = " ".join(child)
    own = own_tests(plan, ".rs", RUST_TEST, os.path.realpath)
    return run_reading(argv, env, RustTally(own, sources), pass_fds=[library])


def cargo_end(here: str) -> int:
    """Compile cargo_end.c with what cargo links with; return a descriptor of the library, which nobody can change."""
    library = os.memfd_create("end", os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryDirectory() as directory:
        built = Path(directory, "end.so")
        argv = [find("cc"), "-shared", "-fPIC", "-O1", "-o", str(built), f"{here}/cargo_end.c", "-ldl"]
        if subprocess.run(argv, check=False).returncode != 0:
            complain("cc cannot compile what tells the end of cargo's tests")
            raise SystemExit(NOT_FOUND)
        Path(f"/proc/self/fd/{library}").write_bytes(built.read_bytes())
    fcntl.fcntl(library, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return library


def cargo_host(cargo: str) -> str:
    """The name that this machine has in cargo's variables."""
    said = subprocess.run([cargo, "-vV"], stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout
    (host,) = (line.partition(" ")[2] for line in said.splitlines() if line.startswith("host: "))
    return host.upper().replace("-", "_")


def rust_sources(told: bytes) -> dict[str, str]:
    """Find what each binary of tests is made of, in the messages of its build."""
    messages = [json.loads(line) for line in told.splitlines() if line.startswith(b"{")]
    return {
        os.path.realpath(each["executable"]): os.path.realpath(each["target"]["src_path"])
        for each in messages
        if each.get("executable") is not None
    }


def own_tests(
    plan: Plan, suffix: str, pattern: re.Pattern[str], place_of: Callable[[Path], str | None]
) -> list[tuple[str, str]]:
    """Find where the tests of the oracle's own files stand, and their names."""
    found: list[tuple[str, str]] = []
    for path in map(Path, plan["files"]):
        place = place_of(path) if path.suffix == suffix else None
        if place is not None:
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [(place, name) for name in pattern.findall(text)]
    return found


def go_package(path: Path) -> str | None:
    """The import path of the package that a file belongs to; None when it is in no module."""
    root = nearest(path, "go.mod")
    module = None if root is None else GO_MODULE.search((root / "go.mod").read_text(errors="replace"))
    if root is None or module is None:
        return None
    below = path.parent.relative_to(root).as_posix()
    return module[1] if below == "." else f"{module[1]}/{below}"


def nearest(path: Path, name: str) -> Path | None:
    """Find the nearest directory above a file that has a file of some name."""
    return next((parent for parent in path.parents if (parent / name).is_file()), None)


def find(*programs: str) -> str:
    """Find the first program that is installed."""
    for program in programs:
        path = shutil.which(program)
        if path is not None:
            return path
    complain(f"{' or '.join(programs)} is not on PATH")
    raise SystemExit(NOT_FOUND)


def complain(text: str) -> None:
    """Say what is wrong."""
    sys.stderr.write(f"test_runner: {text}\n")


KINDS = {"pytest": run_pytest, "unittest": run_unittest, "node": run_node, "go": run_go, "cargo": run_cargo}


def main() -> int:
    """Run the plan."""
    if len(sys.argv) != 2:
        complain("usage: test_runner.py PLAN")
        return BAD_USAGE
    if not close_to_others():
        complain("this process cannot be closed to others")
        return NOT_CLOSED
    env = dict(os.environ)
    nonce = read_all(int(env.pop("FAIRTRIAL_NONCE_FD"))).strip()
    proof_fd = int(env.pop("FAIRTRIAL_PROOF_FD"))
    os.set_inheritable(proof_fd, False)  # noqa: FBT003 - it has no keyword
    plan: Plan = json.loads(Path(sys.argv[1]).read_bytes())
    ended = KINDS[plan["kind"]](plan, env)
    counts = ended.counts
    if counts is None:
        return NOT_BELIEVED
    os.write(proof_fd, nonce + b" " + json.dumps(counts._asdict()).encode() + b"\n")
    expected: int | None = plan["expect_tests"]
    enough = counts.n_passed >= 1 and counts.n_skipped == 0 if expected is None else counts.n_passed >= expected
    return 0 if ended.returncode == 0 and counts.n_failed == 0 and enough else FAILED


if __name__ == "__main__":
    sys.exit(main())
