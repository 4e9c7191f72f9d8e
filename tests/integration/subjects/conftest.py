"""Trials of every subject: the real binary, a real store, no sweep around them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.model.loop import Transport, Variant
from fairtrial.model.trial import LoopTask, TrialSpec
from fairtrial.protocols import Subject
from fairtrial.subjects.fossil import Fossil
from fairtrial.subjects.git import Git
from fairtrial.subjects.jujutsu import Jujutsu
from fairtrial.subjects.mercurial import Mercurial
from fairtrial.subjects.oak import Oak

CLASSES: dict[str, type[Subject]] = {"git": Git, "hg": Mercurial, "fossil": Fossil, "oak": Oak, "jj": Jujutsu}

MakeTrial = Callable[..., tuple[TrialSpec, Subject]]


@pytest.fixture
def make_trial(tmp_path: Path) -> MakeTrial:
    """A trial of a subject by name, or of a subject class that spoils something, by the same name."""

    def make(
        name: str,
        transport: Transport,
        scenario: str = "task_loop",
        spoiled: Callable[[type[Subject]], type[Subject]] = lambda plain: plain,
        faults: tuple[str, ...] = (),
    ) -> tuple[TrialSpec, Subject]:
        binary = shutil.which(name)
        assert binary is not None
        variant = Variant(name=name, subject=name, label=name, binary=binary)
        scratch = tmp_path / "s"
        scratch.mkdir(exist_ok=True)
        task = LoopTask(
            scenario=scenario,
            variant=variant,
            subject_kind=name,
            transport=transport,
            run=0,
            block=f"{scenario}/{transport}/0",
            position_in_block=0,
            block_order=(name,),
            null_control=False,
            skip_reason=None,
            admitted_output_characters=20_000,
            n_seed_files=5,
            hosted_remote=None,
            credential_env=(),
            faults=faults,
        )
        spec = TrialSpec(
            sweep="loop-test",
            key=f"loop/{scenario}/{transport}/{name}/0",
            attempt=1,
            plan_index=0,
            sweep_pass=0,
            results=str(tmp_path / "results"),
            scratch=str(scratch),
            metadata={"bench_id": "loop-test"},
            loop=task,
        )
        return spec, spoiled(CLASSES[name])(variant)

    return make
