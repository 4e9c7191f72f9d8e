import os
from pathlib import Path

import pytest

from fairtrial.host.process import run, start
from fairtrial.host.spawn import Plumbing, Stdio, explain_spawn_error, find_program
from fairtrial.model.process import ProcessState


def plant(directory: Path, name: str, *, mode: int = 0o755, says: str = "planted") -> Path:
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\necho {says}\n")
    program.chmod(mode)
    return program


def test_a_name_is_looked_up_on_the_path_of_the_child_and_not_on_ours(tmp_path: Path) -> None:
    program = plant(tmp_path / "bin", "tool")
    assert find_program("tool", {"PATH": f"/nowhere:{tmp_path}/bin"}) == str(program)
    assert find_program("tool", {"PATH": "/nowhere"}) is None
    assert find_program("tool", {}) is None


def test_the_first_executable_on_the_path_wins(tmp_path: Path) -> None:
    plant(tmp_path / "a", "tool", mode=0o644)
    wanted = plant(tmp_path / "b", "tool")
    plant(tmp_path / "c", "tool")
    assert find_program("tool", {"PATH": f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/c"}) == str(wanted)


@pytest.mark.parametrize("planted_path", ["", ".", ":/usr/bin", "bin"])
def test_a_working_directory_cannot_plant_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted_path: str
) -> None:
    plant(tmp_path, "planted-tool")
    plant(tmp_path / "bin", "planted-tool")
    monkeypatch.chdir(tmp_path)
    result = run(["planted-tool"], env={"PATH": planted_path}, cwd=tmp_path, timeout_s=10)
    assert result.state is ProcessState.SPAWN_FAILURE


def test_a_relative_program_is_taken_from_the_directory_of_the_child(tmp_path: Path) -> None:
    plant(tmp_path / "here", "tool", says="here")
    result = run(["./tool"], env={}, cwd=tmp_path / "here", timeout_s=10)
    assert result.stdout.tail == b"here\n"


def test_a_directory_that_may_not_be_entered_is_named(tmp_path: Path) -> None:
    told = explain_spawn_error(13, program="/bin/true", cwd=tmp_path)
    assert told == "cannot start /bin/true: Permission denied"
    told = explain_spawn_error(2, program="/bin/true", cwd=tmp_path / "gone")
    assert told == f"cannot start /bin/true: working directory {tmp_path}/gone: No such file or directory"


def test_names_that_are_no_text_pass_unchanged(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe")
    result = run(["/bin/echo", name], env={}, cwd=tmp_path, timeout_s=10)
    assert result.stdout.tail == b"\xff\xfe\n"


def test_every_descriptor_of_the_streams_is_close_on_exec_and_closed_in_the_end() -> None:
    stdio = Stdio(stdin=Plumbing.PIPE, stdout=Plumbing.NULL, stderr=Plumbing.INHERIT)
    fds = [fd for fd in (*stdio.child_fds, *stdio.our_fds) if fd is not None]
    assert len(fds) == 3
    assert not any(os.get_inheritable(fd) for fd in fds)
    stdio.close_child_ends()
    stdio.close()
    stdio.close()
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_a_child_gets_the_callers_descriptors_from_three_on() -> None:
    ends = [os.pipe() for _ in range(3)]
    try:
        argv = ["/bin/sh", "-c", "echo a >&3; echo b >&4; echo c >&5; ls /proc/self/fd | wc -l >&5"]
        with start(argv, env={"PATH": "/usr/bin:/bin"}, pass_fds=[write_fd for _, write_fd in ends]) as child:
            assert child.wait(60) == 0
        assert [os.read(read_fd, 100) for read_fd, _ in ends] == [b"a\n", b"b\n", b"c\n7\n"]
    finally:
        for pair in ends:
            for fd in pair:
                os.close(fd)


def test_a_socket_takes_output_that_no_other_process_can_open() -> None:
    argv = ["/bin/sh", "-c", "echo x >/proc/self/fd/1 || echo refused"]
    with start(argv, env={"PATH": "/usr/bin:/bin"}, stdout=Plumbing.SOCKET) as child:
        assert child.stdout_fd is not None
        assert os.read(child.stdout_fd, 100) == b"refused\n"
        child.wait(60)
