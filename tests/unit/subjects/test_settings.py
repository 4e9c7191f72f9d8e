"""A variant's settings are judged by the subject that has to take them, before anything is measured."""

import pytest

from fairtrial.model.loop import Variant
from fairtrial.protocols import Subject
from fairtrial.subjects.fossil import Fossil
from fairtrial.subjects.git import Git
from fairtrial.subjects.jujutsu import Jujutsu
from fairtrial.subjects.mercurial import Mercurial
from fairtrial.subjects.oak import Oak

GIT_OF_JJ = "git.executable-path"
GOOD: list[tuple[type[Subject], dict[str, str]]] = [
    (Git, {"feature.manyFiles": "true", "url.https://x.invalid/a b.insteadOf": "y", "core.fsmonitor": ""}),
    (Mercurial, {"extensions.share": "", "paths.default:pushrev": ".", "merge-tools.x.args": "a = b"}),
    (Fossil, {"crlf-glob": "*", "autosync": "0"}),
    (Oak, {"push_options": "--quiet"}),
    (Jujutsu, {GIT_OF_JJ: '"/usr/bin/git"', "ui.color": '"always"', "snapshot.max-new-file-size": "10_000"}),
]
BAD: list[tuple[type[Subject], dict[str, str], str, str]] = [
    (Git, {"core.x": "1", "nodot": "true"}, "nodot", "write section.name"),
    (Git, {"core.": "true"}, "core.", "write section.name"),
    (Git, {"core.no_underscore": "true"}, "core.no_underscore", "write section.name"),
    (Mercurial, {"share": ""}, "share", "write section.name"),
    (Mercurial, {"ui.a=b": "c"}, "ui.a=b", "write section.name"),
    (Fossil, {"a=b": "c"}, "a=b", "no name of a fossil setting"),
    (Oak, {"push_option": "--quiet"}, "push_option", "valid: push_options"),
    (Jujutsu, {GIT_OF_JJ: "no quotes"}, GIT_OF_JJ, "quoted twice"),
    (Jujutsu, {GIT_OF_JJ: "1"}, GIT_OF_JJ, "is no text"),
    (Jujutsu, {"ui": '{ color = "never" }'}, "ui", "no line of jj's configuration"),
]


@pytest.mark.parametrize(("subject", "settings"), GOOD)
def test_settings_that_the_tool_can_take_are_taken(subject: type[Subject], settings: dict[str, str]) -> None:
    assert subject(Variant(name="x", subject="x", label="x", settings=settings)).check_settings() == {}


@pytest.mark.parametrize(("subject", "settings", "key", "remedy"), BAD)
def test_a_setting_that_it_cannot_take_is_named_with_the_remedy(
    subject: type[Subject], settings: dict[str, str], key: str, remedy: str
) -> None:
    wrong = subject(Variant(name="x", subject="x", label="x", settings=settings)).check_settings()
    assert wrong.keys() == {key}
    assert remedy in wrong[key]
