"""Entries to totals and tables."""

from decimal import ROUND_HALF_UP, Decimal


def by_category(entries):
    """Total of each category, in the order of names."""
    names = []
    for entry in entries:
        if entry.category not in names:
            names.append(entry.category)
    totals = {}
    for name in sorted(names):
        totals[name] = sum((entry.amount for entry in entries if entry.category == name), Decimal(0))
    return totals


def by_month(entries):
    """Total of each month, as `2026-01`, in order."""
    months = []
    for entry in entries:
        month = entry.day.isoformat()[:7]
        if month not in months:
            months.append(month)
    totals = {}
    for month in sorted(months):
        totals[month] = sum((e.amount for e in entries if e.day.isoformat()[:7] == month), Decimal(0))
    return totals


def table(totals):
    """Totals as aligned lines, the sum last."""
    rows = [(name, str(amount.quantize(Decimal("0.01"), ROUND_HALF_UP))) for name, amount in totals.items()]
    total = sum(totals.values(), Decimal(0))
    rows.append(("total", str(total.quantize(Decimal("0.01"), ROUND_HALF_UP))))
    width = max(len(name) for name, _ in rows)
    digits = max(len(amount) for _, amount in rows)
    return "\n".join(f"{name:<{width}}  {amount:>{digits}}" for name, amount in rows)
