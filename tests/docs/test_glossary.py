"""`glossary.md`: the words of the design, one line each."""

from collections.abc import Callable

from fairtrial.model.loop import Manner, Motion, Transport

ReadTable = Callable[..., list[dict[str, str]]]

WORDS = """
task, arm, phase, session, trial, attempt, sweep, block, authored check, oracle, truth check, incumbent, candidate,
overlay, layer, subject, scenario, operation, motion, transport, fault, gateway, relay, void, row, evidence, gate,
decision, audit, reference agent, nop agent, null control
"""


def test_every_word_of_the_design_has_one_line(read_table: ReadTable) -> None:
    words = [line["word"] for line in read_table("glossary.md", "Glossary")]
    assert words == sorted(words)
    assert len(words) == len(set(words))
    assert {word.strip() for word in WORDS.split(",")} <= set(words)


def test_a_closed_set_is_told_whole(read_table: ReadTable) -> None:
    meaning = {line["word"]: line["meaning"] for line in read_table("glossary.md", "Glossary")}
    assert meaning["motion"].endswith(": " + ", ".join(Motion))
    assert meaning["manner"].endswith(": " + ", ".join(Manner))
    assert meaning["transport"].endswith(": " + ", ".join(Transport))
