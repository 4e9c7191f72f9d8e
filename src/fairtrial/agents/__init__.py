"""The coding agents that are driven through sessions: one file each; see `fairtrial.protocols.Agent`."""
