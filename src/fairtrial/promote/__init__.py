"""From a decision to a changed tree: the promotion file, and the one transaction that touches a person's files."""
