"""Running one command in a sandbox to its end: started, fed, drained, watched, and nothing of it left.

Public shape (being built): `start_sandbox(spec, slot=...) -> Sandbox`, `run_sandbox(spec, slot=...) -> SandboxResult`.
"""
