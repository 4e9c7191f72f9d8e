"""pytest with our reporter in it: the child of `test_runner.py`.

    python3 -I pytest_child.py FILES ARGUMENT...

FILES is a JSON list of the oracle's own files. The key is read, and pytest imported, while nothing of the workspace
can be imported yet. Runs on the Python that the tests need, and is imported by nobody.
"""

import hashlib
import hmac
import json
import os
import sys

import pytest

ORDER = ("passed", "skipped", "failed")


def open_report():
    """Return a function that sends one line with its code; the key is nowhere else."""
    fd = int(os.environ.pop("FAIRTRIAL_REPORT_FD"))
    os.set_inheritable(fd, False)
    key = b""
    while len(key) < 32:
        key += os.read(fd, 32 - len(key))
    n_lines = 0

    def say(text):
        nonlocal n_lines
        code = hmac.new(key, b"%d %s" % (n_lines, text.encode()), hashlib.sha256).hexdigest()
        n_lines += 1
        os.write(fd, ("%s %s\n" % (code, text)).encode())

    return say


class Reporter:
    """Sends the ending of each test of the oracle's own files, the worse of what happened and what pytest made of it."""

    def __init__(self, say, files):
        self._say = say
        self._files = frozenset(os.path.realpath(path) for path in files)
        self._phases = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self):
        """Let the workspace be imported from, as `python -m pytest` does, now that all plugins are loaded."""
        sys.path[:0] = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        """See what really happened."""
        self._phases[item.nodeid] = {}
        self._happened(item, "setup", (yield))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        """See what really happened."""
        self._happened(item, "call", (yield))

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item):
        """See what really happened."""
        self._happened(item, "teardown", (yield))

    def _happened(self, item, phase, outcome):
        self._phases[item.nodeid][phase] = "passed" if outcome.excinfo is None else "failed"

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Send the ending of one test."""
        reports = self._reports = []
        yield
        path = os.path.realpath(str(getattr(item, "path", None) or item.fspath))
        if path not in self._files:
            return
        phases = self._phases.pop(item.nodeid, {})
        said = [report.outcome for report in reports if report.nodeid == item.nodeid]
        if "failed" in said:
            ending = "failed"
        elif "skipped" in said:
            ending = "skipped"
        elif sorted(phases) == ["call", "setup", "teardown"] and set(phases.values()) == {"passed"}:
            ending = "passed"
        else:
            ending = "failed"
        self._say(ending)

    def pytest_runtest_logreport(self, report):
        """Keep what pytest made of it."""
        self._reports.append(report)


def main():
    """Run pytest."""
    say = open_report()
    files, arguments = json.loads(sys.argv[1]), sys.argv[2:]
    code = pytest.main(arguments, plugins=[Reporter(say, files)])
    say("end")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
