"""Everything that touches the machine: processes, locks, files, clocks. Only this package starts processes."""
