"""Conformance suites and verified fakes for people who write plugins."""
