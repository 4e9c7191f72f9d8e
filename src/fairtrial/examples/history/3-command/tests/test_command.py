import contextlib
import io
import os
import tempfile
import unittest

from tally.__main__ import main


def run(text, *arguments):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "expenses.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main([*arguments, path])
        return code, out.getvalue()


class Command(unittest.TestCase):
    def test_by_category(self):
        self.assertEqual(run("2026-01-03 12.50 food\n"), (0, "food   12.50\ntotal  12.50\n"))

    def test_a_budget(self):
        self.assertEqual(run("2026-01-03 12.50 food\n", "--budget", "20")[1].splitlines()[-1], "left  7.50")

    def test_a_bad_line(self):
        self.assertEqual(run("lunch\n"), (1, "tally: not an entry: 'lunch'\n"))


if __name__ == "__main__":
    unittest.main()
