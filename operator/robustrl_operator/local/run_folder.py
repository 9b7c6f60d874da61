"""The folder of a run on this machine: what is in it under which name, and how the job was started."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from robustrl_api.job import RLJob


class BadRun(Exception):
    """The folder is not one that a run left; the text says what to do."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths in a run's folder."""

    root: Path

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.sqlite"

    @property
    def checkpoints(self) -> Path:
        """Storage of the job, if it has any."""
        return self.root / "checkpoints"

    @property
    def status(self) -> Path:
        return self.root / "status.json"

    @property
    def logs(self) -> Path:
        """A file a pod."""
        return self.root / "logs"

    @property
    def request(self) -> Path:
        """What `robustrl inject` asks for."""
        return self.root / "inject.json"

    @property
    def _description(self) -> Path:
        return self.root / "run.json"

    def describe(self, job: RLJob, code: Path) -> None:
        """Leave behind how the job was started.

        Args:
            code: the folder in which its command and its functions are found.
        """
        self._description.write_text(json.dumps({"code": str(code), "job": job.wire()}, indent=1))

    def description(self) -> tuple[RLJob, Path]:
        """What `describe` left.

        Raises:
            BadRun: nothing that could be read.
        """
        try:
            found = json.loads(self._description.read_text())
            return RLJob.model_validate(found["job"]), Path(found["code"])
        except OSError as error:
            raise BadRun(f"{self.root} is no folder of `robustrl run`: {self._description.name} is missing") from error
        except (ValueError, KeyError, ValidationError) as error:
            raise BadRun(f"{self._description} cannot be read: {error}; give --manifest instead") from error


def enter(code: Path) -> None:
    """Work where the job's code is, and let its processes find it, as an image's working directory does."""
    os.chdir(code)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(code), os.environ.get("PYTHONPATH", "")]))


def find(name: str) -> RunFolder | None:
    """A run by its folder, or the newest run of a job by the job's name, under `out` where `robustrl run` puts them."""
    if (Path(name) / "ledger.sqlite").exists():
        return RunFolder(Path(name).resolve())
    runs = sorted(path for path in Path("out").glob(f"{name}-*") if (path / "ledger.sqlite").exists())
    return RunFolder(runs[-1].resolve()) if runs else None
