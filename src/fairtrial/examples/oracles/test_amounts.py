"""Hidden truth of `amounts`: what is an amount, and what is none."""

import unittest
from decimal import Decimal

from tally.entries import BadLine, parse_line

GOOD = {
    "7": "7",
    "0.5": "0.5",
    "1,250.00": "1250.00",
    "12,345,678.9": "12345678.9",
    "1250.00": "1250.00",
    "-12.50": "-12.50",
    "12.50-": "-12.50",
    "-1,000": "-1000",
    "1,000-": "-1000",
}
BAD = ("12,50", "1,25.00", ",250", "1,2500", "1250,000", "-12-", "--1", "NaN", "Infinity", "1e3", "1_000", "1.2.3", "-")


class Amounts(unittest.TestCase):
    def test_good_amounts(self):
        for text, amount in GOOD.items():
            self.assertEqual(parse_line(f"2026-01-03 {text} food").amount, Decimal(amount), text)

    def test_bad_amounts(self):
        for text in BAD:
            with self.assertRaises(BadLine, msg=text):
                parse_line(f"2026-01-03 {text} food")
