"""The closed loop: propose a candidate from evidence, freeze it, measure it, decide, again."""
