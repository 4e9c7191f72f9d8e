import os
import subprocess
import sys
from pathlib import Path

import pytest


def import_each(clone: Path, directory: Path, python_path: Path, warm: list[str], names: list[str]) -> tuple[int, str]:
    """Run import_each.py in the directory; its exit code and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(python_path), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(directory)}
    script = clone / "tests" / "architecture" / "import_each.py"
    argv = [sys.executable, "-W", "error", str(script), ",".join(warm), *names]
    done = subprocess.run(argv, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(900)  # some hundred interpreters
def test_every_module_imports_alone_and_an_import_does_nothing_else(
    clone: Path, tmp_path: Path, module_names: list[str]
) -> None:
    assert "fairtrial.config.read" in module_names
    assert import_each(clone, tmp_path, clone / "src", module_names, module_names) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "deed"),
    [
        ("print('hello')", "hello"),
        ("import sys; sys.stderr.write('hello')", "hello"),
        ("open('x', 'w').close()", "noisy: open('x', 'w', "),
        ("import os; os.mkdir('d')", "noisy: os.mkdir("),
        ("import os; os.environ['A'] = 'b'", "noisy: os.putenv("),
        ("import socket; socket.socket().close()", "noisy: socket.__new__("),
        ("import subprocess; subprocess.run(['true'])", "noisy: subprocess.Popen("),
        ("import threading; threading.Timer(0.5, print).start()", "noisy: started a thread"),
        ("import warnings; warnings.warn('old', DeprecationWarning)", "DeprecationWarning: old"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_the_check_of_imports_sees_each_kind_of_side_effect(clone: Path, tmp_path: Path, body: str, deed: str) -> None:
    (tmp_path / "noisy.py").write_text(body)
    _, output = import_each(clone, tmp_path, tmp_path, ["asyncio"], ["noisy"])
    assert deed in output


def test_import_linter_passes(clone: Path) -> None:
    argv = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(clone / "src")}
    done = subprocess.run(argv, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "imports point down only KEPT" in done.stdout
