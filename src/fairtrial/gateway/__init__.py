"""The model gateway: dialects, meter, egress check, prices, policy, script and record."""
