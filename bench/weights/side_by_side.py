"""The same bytes by other libraries and by plain means, on the same box in the same run.

Each lives in a virtual environment of its own outside the repository, made when it is first asked for. What cannot be
installed or does not run is listed with its error. They move bytes; ours moves and verifies them.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pair
from table import Row

PEERS = Path(__file__).parent / "peers"
VENVS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "robustrl" / "bench-peers"
HELPERS = {"bytes_of"}
SIZE = 512 << 20
INSTALL_SECONDS, RUN_SECONDS = 300, 120
READY = "READY "
"""What a sender's word begins with, among what its library may print."""


class DoesNotRun(Exception):
    """A peer that cannot be measured here, and why."""


def measure(ours: Mapping[str, Mapping[str, str]], runs: int, size: int = SIZE) -> Iterator[Row]:
    """Rows for every peer; ours last, in each of its profiles."""
    for script in sorted(PEERS.glob("*.py")):
        if script.stem not in HELPERS:
            yield _row(script, runs, size)
    for name, env in ours.items():
        yield from (row for row in pair.measure(name, env, size=size, runs=runs) if row.unit == "GB/s")


def _row(script: Path, runs: int, size: int) -> Row:
    what = f"side by side: {script.stem}"
    try:
        found = _run(_python(script), script, runs, size)
    except subprocess.TimeoutExpired as error:
        return Row(what, 0, "GB/s", note=f"does not run here: not finished after {error.timeout:.0f} s")
    except (DoesNotRun, OSError) as error:
        return Row(what, 0, "GB/s", note=f"does not run here: {error}")
    rates = [size / seconds / 1e9 for seconds in found["seconds"]]
    return Row(what, statistics.median(rates), "GB/s", exact=found["exact"], runs=rates, note="not verified")


def _python(script: Path) -> str:
    """The interpreter of a peer's environment, which is made if need be.

    Raises:
        DoesNotRun: its packages cannot be installed.
    """
    folder = VENVS / script.stem
    python, mark = folder / "bin/python", folder / ".installed"
    packages = _constant(script, "PACKAGES")
    if mark.exists() and mark.read_text() == repr(packages):
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    make = [uv, "venv", "--quiet", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    pip = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    for command in ([*make, str(folder)], [*pip, "--quiet", *packages]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        if done.returncode:
            raise DoesNotRun(f"not installed ({_last_line(done.stderr)})")
    mark.write_text(repr(packages))
    return str(python)


def _constant(script: Path, name: str) -> tuple[str, ...]:
    """A constant of a script that cannot be imported here."""
    for node in ast.parse(script.read_text()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return tuple(ast.literal_eval(node.value))
    raise DoesNotRun(f"{script.name} has no {name}")


def _run(python: str, script: Path, runs: int, size: int) -> dict[str, Any]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("UCX")}
    with tempfile.TemporaryFile("w+") as errors:
        command = [python, str(script), "send", str(size)]
        sender = subprocess.Popen(command, env=plain, text=True, stdout=subprocess.PIPE, stderr=errors)
        too_long = threading.Timer(3 * RUN_SECONDS, sender.kill)
        too_long.start()
        try:
            assert sender.stdout
            word = next((line for line in sender.stdout if line.startswith(READY)), None)
            if word is None:
                errors.seek(0)
                raise DoesNotRun(_last_line(errors.read()))
            return _receive([python, str(script)], plain, word.removeprefix(READY).strip(), runs, size)
        finally:
            too_long.cancel()
            sender.kill()
            sender.communicate()


def _receive(script: list[str], env: Mapping[str, str], word: str, runs: int, size: int) -> dict[str, Any]:
    command = [*script, "receive", str(size), word, str(runs)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if done.returncode:
        raise DoesNotRun(_last_line(done.stderr))
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ended without a word"])[-1][:160]
