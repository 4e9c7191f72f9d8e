"""Hidden truth of `linear`: each entry is looked at a few times, however many categories there are."""

import unittest
from datetime import date, timedelta
from decimal import Decimal

from tally.report import by_category, by_month

N = 2000


class Counted:
    """An entry that counts how often it is asked."""

    def __init__(self, number):
        self.asked = 0
        self.amount = Decimal(number)
        self._category = f"c{number:05}"
        self._day = date(1900, 1, 1) + timedelta(days=31 * number)

    @property
    def category(self):
        self.asked += 1
        return self._category

    @property
    def day(self):
        self.asked += 1
        return self._day


class Linear(unittest.TestCase):
    def test_each_entry_is_asked_a_few_times(self):
        for function in (by_category, by_month):
            entries = [Counted(number) for number in range(N)]
            totals = function(entries)
            self.assertLessEqual(max(entry.asked for entry in entries), 4, function.__name__)
            self.assertEqual(sum(totals.values()), sum(range(N)))

    def test_the_order_is_that_of_names(self):
        entries = [Counted(number) for number in (3, 1, 2)]
        self.assertEqual(list(by_category(entries)), ["c00001", "c00002", "c00003"])
        self.assertEqual(by_category(entries)["c00002"], Decimal(2))
