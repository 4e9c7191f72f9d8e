"""python -m tally [--month] FILE"""

import argparse
import sys
from decimal import ROUND_HALF_UP, Decimal

from tally.entries import BadLine, parse
from tally.report import by_category, by_month, table


def main(arguments=None):
    """Print the totals of a file."""
    parser = argparse.ArgumentParser(prog="tally", description="Totals of an expense file.")
    parser.add_argument("file")
    parser.add_argument("--month", action="store_true", help="by month instead of by category")
    parser.add_argument("--budget", metavar="AMOUNT", help="say what is left of this amount")
    options = parser.parse_args(arguments)
    with open(options.file, encoding="utf-8") as file:
        try:
            entries = parse(file)
        except BadLine as problem:
            print(f"tally: {problem}", file=sys.stderr)
            return 1
    if not entries:
        print("nothing spent")
        return 0
    print(table(by_month(entries) if options.month else by_category(entries)))
    if options.budget is not None:
        left = Decimal(options.budget) - sum((entry.amount for entry in entries), Decimal(0))
        print(f"left  {left.quantize(Decimal('0.01'), ROUND_HALF_UP)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
