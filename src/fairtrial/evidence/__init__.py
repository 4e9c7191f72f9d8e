"""Pure decisions over rows: endings, aggregates, totals, streaks, verdicts."""
