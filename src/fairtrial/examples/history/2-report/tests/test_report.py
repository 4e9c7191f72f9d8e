import unittest
from decimal import Decimal

from tally.entries import parse
from tally.report import by_category, by_month, table

ENTRIES = parse(["2026-01-03 12.50 food", "2026-01-04 2 travel", "2026-02-01 1.25 food"])


class Totals(unittest.TestCase):
    def test_by_category(self):
        self.assertEqual(by_category(ENTRIES), {"food": Decimal("13.75"), "travel": Decimal("2")})

    def test_by_month(self):
        self.assertEqual(by_month(ENTRIES), {"2026-01": Decimal("14.50"), "2026-02": Decimal("1.25")})

    def test_table(self):
        self.assertEqual(table(by_category(ENTRIES)), "food    13.75\ntravel   2.00\ntotal   15.75")


if __name__ == "__main__":
    unittest.main()
