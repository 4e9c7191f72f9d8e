"""Hidden truth of `json`: the command as a program."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

TEXT = "2026-01-03 12.50 food\n2026-01-04 2 travel\n2026-02-01 1.255 food\n"


def run(text, *arguments):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "expenses.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        command = [sys.executable, "-m", "tally", *arguments, path]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)


class JsonOutput(unittest.TestCase):
    def test_by_category(self):
        done = run(TEXT, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = {"by": "category", "totals": {"food": "13.76", "travel": "2.00"}, "total": "15.76"}
        self.assertEqual(json.loads(done.stdout), expected)

    def test_by_month(self):
        expected = {"by": "month", "totals": {"2026-01": "14.50", "2026-02": "1.26"}, "total": "15.76"}
        self.assertEqual(json.loads(run(TEXT, "--json", "--month").stdout), expected)

    def test_a_budget(self):
        self.assertEqual(json.loads(run(TEXT, "--json", "--budget", "20").stdout)["left"], "4.25")

    def test_nothing_spent(self):
        self.assertEqual(json.loads(run("", "--json").stdout), {"by": "category", "totals": {}, "total": "0.00"})

    def test_the_table_is_as_before(self):
        self.assertEqual(run("2026-01-03 12.50 food\n").stdout, "food   12.50\ntotal  12.50\n")
