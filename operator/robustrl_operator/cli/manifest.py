"""Reading an RLJob from a file, with errors that name the field."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from robustrl_api.job import RLJob


class BadManifest(Exception):
    """The file holds no valid RLJob; the text says what to mend."""


def read_job(path: Path) -> RLJob:
    """The first RLJob in a YAML file.

    Raises:
        BadManifest: there is none, or it is invalid.
    """
    try:
        documents = [each for each in yaml.safe_load_all(path.read_text()) if isinstance(each, dict)]
    except OSError as error:
        raise BadManifest(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadManifest(f"{path} is not YAML: {error}") from error
    found = [each for each in documents if each.get("kind") == "RLJob"]
    if not found:
        raise BadManifest(f"{path} holds no object of kind RLJob")
    try:
        return RLJob.model_validate(found[0])
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise BadManifest(f"{path} is not a valid RLJob:\n" + "\n".join(lines)) from error
