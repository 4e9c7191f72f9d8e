"""One file a command: parse, call, print. Nothing else prints."""
