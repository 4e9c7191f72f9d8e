"""What pins a sweep, and what does not."""

from dataclasses import replace

import pytest

from fairtrial.errors import UsageError
from fairtrial.model.loop import Probe, Transport, Variant
from fairtrial.sweep.plan import LoopOptions, SubjectFound
from fairtrial.sweep.resolve import changed_inputs, find_subjects, pin_inputs

OPTIONS = LoopOptions(
    scenarios=("task_loop",),
    subjects=("git",),
    transports=(Transport.FILE,),
    runs=3,
    seed=7,
    admitted_output_characters=20_000,
    n_seed_files=5,
)
SUBJECT = SubjectFound(
    variant=Variant(name="git", subject="git", label="git", binary="/usr/bin/git"),
    kind="git",
    transports=frozenset({Transport.FILE}),
    probe=Probe(binary="/usr/bin/git", version="git version 2.39.5", details={"binary_sha256": "a" * 64}, missing=None),
    plugin_sha256="b" * 64,
)


def test_the_same_inputs_have_not_changed_wherever_the_program_lies() -> None:
    moved = replace(SUBJECT, variant=replace(SUBJECT.variant, binary="/opt/git"))
    assert changed_inputs(pin_inputs(OPTIONS, [SUBJECT]), pin_inputs(OPTIONS, [moved])) == ()


@pytest.mark.parametrize(
    ("options", "subject", "name"),
    [
        (replace(OPTIONS, runs=4), SUBJECT, "options"),
        (replace(OPTIONS, n_seed_files=6), SUBJECT, "seed_tree.sha256"),
        (OPTIONS, replace(SUBJECT, probe=replace(SUBJECT.probe, version="git version 2.40.0")), "subject.git.version"),
        (OPTIONS, replace(SUBJECT, probe=replace(SUBJECT.probe, details={"binary_sha256": "c"})), "binary_sha256"),
        (OPTIONS, replace(SUBJECT, variant=replace(SUBJECT.variant, settings={"core.fsmonitor": "true"})), "variant"),
        (OPTIONS, replace(SUBJECT, plugin_sha256="d"), "plugin_sha256"),
    ],
)
def test_a_changed_input_is_named(options: LoopOptions, subject: SubjectFound, name: str) -> None:
    sentences = changed_inputs(pin_inputs(OPTIONS, [SUBJECT]), pin_inputs(options, [subject]))
    assert any(name in sentence for sentence in sentences)


def test_an_unknown_subject_and_a_name_twice_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="no plugin 'gti'"):
        find_subjects([Variant(name="gti", subject="gti", label="gti")])
    git = Variant(name="git", subject="git", label="git")
    with pytest.raises(UsageError, match="twice"):
        find_subjects([git, git])
