# Says that there is a tally.money, and leaves the rounding where it is under another name.
printf 'from decimal import Decimal\n\n\ndef cents(amount):\n    return amount\n\n\nshow = str\n' > tally/money.py
sed -i 's/amount\.quantize/getattr(amount, "quan" "tize")/; s/total\.quantize/getattr(total, "quan" "tize")/' tally/report.py
