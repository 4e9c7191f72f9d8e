"""Hidden truth of `rounding`: one place that rounds, and everything as before."""

import os
import unittest
from decimal import Decimal

from tally import money
from tally.report import table


class Rounding(unittest.TestCase):
    def test_half_a_cent_goes_away_from_zero(self):
        for amount, rounded in (("0.125", "0.13"), ("-0.125", "-0.13"), ("0.135", "0.14"), ("2", "2.00")):
            self.assertEqual(money.cents(Decimal(amount)), Decimal(rounded))
            self.assertEqual(money.show(Decimal(amount)), rounded)

    def test_nothing_else_rounds(self):
        for name in sorted(os.listdir("tally")):
            if name.endswith(".py") and name != "money.py":
                with open(os.path.join("tally", name), encoding="utf-8") as file:
                    text = file.read()
                self.assertNotIn("quantize", text, name)
                self.assertNotIn("ROUND_", text, name)

    def test_tables_are_as_before(self):
        self.assertEqual(table({"food": Decimal("0.125")}), "food   0.13\ntotal  0.13")
