"""The results directory: layout, journal, attempts, seal, audit."""
