import unittest
from datetime import date
from decimal import Decimal

from tally.entries import BadLine, Entry, parse, parse_line


class ParseLine(unittest.TestCase):
    def test_an_entry(self):
        self.assertEqual(
            parse_line("2026-01-03 12.50 food lunch with Ada\n"),
            Entry(date(2026, 1, 3), Decimal("12.50"), "food", "lunch with Ada"),
        )

    def test_a_note_may_be_missing(self):
        self.assertEqual(parse_line("2026-01-03 12.50 food").note, "")

    def test_comments_and_blank_lines(self):
        self.assertEqual(parse(["# january", "", "  "]), [])

    def test_a_bad_line(self):
        for line in ("2026-13-03 1 food", "2026-01-03 much food", "2026-01-03 1"):
            with self.assertRaises(BadLine):
                parse_line(line)


if __name__ == "__main__":
    unittest.main()
