"""A proposal: what a proposer is given, and what is taken from it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.errors import IntegrityError
from fairtrial.evolve.proposal import (
    MAX_PROPOSAL_BYTES,
    Aim,
    Given,
    InvalidProposalError,
    prepare_proposal,
    proposer_options,
    take_candidate,
)
from fairtrial.evolve.record import GenerationFiles
from fairtrial.evolve.values import EvolveOptions
from fairtrial.host.git import git
from fairtrial.store.attempts import INTENT_SCHEMA, OUTCOME_SCHEMA, describe_artifacts, write_intent, write_outcome
from fairtrial.store.layout import Results
from fairtrial.sweep.bench_plan import BenchOptions, CandidateOptions, PluginOptions
from fairtrial.workspace.archive import pack_change
from fairtrial.workspace.change import Change, Entry, Kind
from fairtrial.workspace.overlay import read_overlay
from fairtrial.workspace.skill_layout import SkillLayout

LAYOUT = SkillLayout(root=".claude/skills", skills=("plan", "work"))
SKILL = "overlay/.claude/skills/work/SKILL.md"
KEY = "bench/propose/proposer/0"
GIVEN = Given(
    generation=3,
    skills={".claude/skills/work/SKILL.md": b"old\n"},
    evidence={"schema": "evolve-evidence/1", "rows": [{"task": "WORDS-OF-EVIDENCE"}], "gate": [], "learnings": []},
    transcripts={"00.jsonl": b"{}\n"},
    earlier={"2/.claude/skills/work/SKILL.md": b"tried\n"},
)


def entry(path: str | bytes, content: bytes = b"new\n", kind: Kind = Kind.FILE) -> Entry:
    return Entry(path=path if isinstance(path, bytes) else path.encode(), kind=kind, existed=False, content=content)


@pytest.fixture
def here(tmp_path: Path) -> GenerationFiles:
    root = tmp_path / "0"
    root.mkdir()
    return GenerationFiles(root=root)


def take(here: GenerationFiles, *entries: Entry, refused: tuple[str, ...] = ()) -> Path:
    """What is frozen of a change of these entries, beside a good proposal."""
    results = Results(root=here.root / "r")
    results.root.mkdir()
    results.trials.mkdir()
    identity = {"sweep": "s", "key": KEY, "attempt": 1}
    directory = write_intent(results, {"schema": INTENT_SCHEMA, **identity, "begun_utc": "u"})
    ordered = sorted(entries, key=lambda each: each.path)
    (directory / "change.tar").write_bytes(pack_change(Change(entries=tuple(ordered)), commit="c", tree_id="t"))
    ending = {
        "artifacts": describe_artifacts(directory),
        "rows": [{"schema": "bench-row/1", "task": "propose"}],
        "ended_utc": "u",
    }
    write_outcome(results, {"schema": OUTCOME_SCHEMA, **identity, **ending})
    row = {"key": KEY, "attempt": 1, "refused_paths": list(refused)}
    take_candidate(here, results, row, LAYOUT)
    return here.candidate


GOOD = (entry(SKILL), entry("proposal.md", b"why\n"))


def test_the_tree_holds_the_skills_and_the_evidence_and_nothing_else(here: GenerationFiles) -> None:
    prepare_proposal(here, GIVEN, LAYOUT, agent="bash-agent")
    repository = here.proposal / "repository"
    listed = git(["ls-tree", "-r", "--name-only", "main"], cwd=repository).decode().splitlines()
    assert listed == [
        "earlier/2/.claude/skills/work/SKILL.md",
        "evidence/evidence.json",
        "evidence/transcripts/00.jsonl",
        "incumbent/.claude/skills/work/SKILL.md",
    ]
    assert git(["rev-list", "--count", "--all"], cwd=repository) == b"1\n"


def test_the_same_evidence_gives_the_same_commit_and_a_killed_preparation_is_made_anew(here: GenerationFiles) -> None:
    prepare_proposal(here, GIVEN, LAYOUT, agent="bash-agent")
    commit = git(["rev-parse", "main"], cwd=here.proposal / "repository")
    (here.proposal / "tasks.yaml").write_text("torn")
    prepare_proposal(here, GIVEN, LAYOUT, agent="bash-agent")
    assert git(["rev-parse", "main"], cwd=here.proposal / "repository") == commit
    assert json.loads((here.proposal / "tasks.yaml").read_text())["tasks"][0]["id"] == "propose"


@pytest.mark.parametrize(("budget_usd", "written"), [(None, None), (0.5, {"cost_usd": 0.5})])
def test_what_a_proposal_may_cost_is_its_arms_budget(
    budget_usd: float | None, written: object, here: GenerationFiles
) -> None:
    prepare_proposal(here, GIVEN, LAYOUT, agent="bash-agent", budget_usd=budget_usd)
    arm = json.loads((here.proposal / "arms.yaml").read_text())["arms"]["proposer"]
    assert arm.get("budget") == written


def test_the_prompt_holds_counts_and_paths_and_no_word_of_the_evidence() -> None:
    prompt = GIVEN.prompt(LAYOUT)
    assert "WORDS" not in prompt
    assert "1 runs, 0 earlier" in prompt
    assert "This is generation 3." in prompt


def test_a_proposer_of_a_reviewers_skill_is_told_what_counts_of_a_review() -> None:
    worker, reviewer = GIVEN.prompt(LAYOUT), replace(GIVEN, aim=Aim.REVIEW).prompt(LAYOUT)
    assert "makes more tasks succeed" in worker
    assert "find more of the defects" in reviewer
    assert "cheaper" not in reviewer
    assert reviewer.split("\n\n")[1:] == worker.split("\n\n")[1:]


def test_a_proposer_works_without_what_its_arms_are_measured_with(here: GenerationFiles) -> None:
    asked = BenchOptions(
        tasks="/t",
        arms=("a",),
        model="m",
        agent="claude-code",
        effort="high",
        context="ctags",
        skills={"work": "/s"},
        plugins={"acme": PluginOptions(version="1.2.3", directory="/p")},
    )
    options = EvolveOptions(
        bench=asked,
        candidate=CandidateOptions(overlay="", layout=LAYOUT, project="/p"),
        proposer_agent="bash-agent",
        proposer_model="m-2",
    )
    own = proposer_options(here, options)
    assert (own.context, own.effort, own.skills, own.plugins) == (None, None, {}, {})
    assert (own.agent, own.model, own.arms, own.runs) == ("bash-agent", "m-2", ("proposer",), 1)


def test_a_good_overlay_is_frozen_and_the_proposal_kept(here: GenerationFiles) -> None:
    candidate = take(here, *GOOD, entry("evidence/evidence.json", b"forged"), entry("notes.txt"))
    assert {path.relative_to(candidate).as_posix() for path in candidate.rglob("*") if path.is_file()} == {
        ".claude/skills/work/SKILL.md"
    }
    assert here.proposal_md.read_bytes() == b"why\n"
    assert (candidate / ".claude/skills/work/SKILL.md").stat().st_mode & 0o777 == 0o400
    assert sorted(path.name for path in here.root.iterdir()) == ["candidate", "proposal.md", "r"]


def test_a_candidate_that_a_killed_pass_froze_is_taken_as_it_is_and_another_one_refused(here: GenerationFiles) -> None:
    digest = read_overlay(take(here, *GOOD), LAYOUT).digest
    results = Results(root=here.root / "r")
    row = {"key": KEY, "attempt": 1, "refused_paths": []}
    assert take_candidate(here, results, row, LAYOUT).digest == digest
    skill = here.candidate / ".claude/skills/work/SKILL.md"
    skill.chmod(0o600)
    skill.write_text("other")
    with pytest.raises(IntegrityError, match="is not the candidate that was proposed"):
        take_candidate(here, results, row, LAYOUT)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((entry("proposal.md"),), "nothing was written to overlay"),
        ((entry(SKILL),), "proposal.md is no plain file"),
        ((entry(SKILL), entry("proposal.md", b"")), "proposal.md is no plain file"),
        ((entry(SKILL), entry("proposal.md", b"x" * (MAX_PROPOSAL_BYTES + 1))), "proposal.md is no plain file"),
        ((entry(SKILL), entry("proposal.md", b"/etc/passwd", Kind.LINK)), "proposal.md is no plain file"),
        ((entry(SKILL, b"/etc/passwd", Kind.LINK), GOOD[1]), "is link, not a plain file"),
        ((entry("overlay", b"/etc", Kind.LINK), GOOD[1]), "is link, not a plain file"),
        ((entry(SKILL, kind=Kind.EXECUTABLE), GOOD[1]), "is executable, not a plain file"),
        ((*GOOD, entry("overlay/tally/entries.py")), "does not lie below .claude/skills/"),
        ((*GOOD, entry("overlay/.claude/skills/work/run.py")), "is no Markdown file"),
        ((*GOOD, entry("overlay/.claude/settings.json")), "is no Markdown file"),
        ((*GOOD, entry("overlay/.claude/skills/other/SKILL.md")), "is no skill that a candidate may change"),
        ((*GOOD, entry(b"overlay/.claude/skills/work/\xff.md")), "has a name that is no text"),
        ((*GOOD, entry(f"overlay/.claude/skills/work/{'d/' * 2000}a.md")), "begins a path longer than 512 bytes"),
        ((entry(SKILL, b"x" * (4 << 20)), entry("overlay/.claude/skills/work/b.md"), GOOD[1]), "more than a candidate"),
        (
            (*(entry(f"overlay/.claude/skills/work/{n}.md") for n in range(65)), GOOD[1]),
            "is one of more than 64 files",
        ),
        ((*(entry(f"overlay/.claude/skills/work/{n}.md") for n in range(257)), GOOD[1]), "has 257 files"),
    ],
)
def test_what_is_no_candidate_is_refused_and_nothing_of_it_stays(
    here: GenerationFiles, entries: tuple[Entry, ...], why: str
) -> None:
    with pytest.raises(InvalidProposalError, match=why.replace(".", r"\.")):
        take(here, *entries)
    assert not here.candidate.exists()
    assert not (here.root / "candidate.read").exists()


def test_special_files_are_refused(here: GenerationFiles) -> None:
    with pytest.raises(InvalidProposalError, match="special files"):
        take(here, *GOOD, refused=("overlay/pipe",))


def test_a_change_that_is_not_the_recorded_one_is_believed_nothing_of(here: GenerationFiles) -> None:
    take(here, *GOOD)
    results = Results(root=here.root / "r")
    path = results.attempt_dir(KEY, 1) / "change.tar"
    path.write_bytes(pack_change(Change(entries=(GOOD[0],)), commit="c", tree_id="t"))
    with pytest.raises(IntegrityError, match="is not what was recorded"):
        take_candidate(here, results, {"key": KEY, "attempt": 1}, LAYOUT)
