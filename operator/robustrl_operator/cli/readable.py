"""The RLJobs of a namespace that can be read: somebody else's mistake must not hide all other jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from robustrl_api.job import RLJob
from robustrl_api.skew import read_stored


def readable(items: Iterable[Any]) -> Iterator[RLJob]:
    """Each job that can be read; of the others it is said why not."""
    for item in items:
        try:
            yield read_stored(RLJob, item.to_dict())
        except ValidationError as error:
            name = item.metadata.name if item.metadata else ""
            print(f"robustrl: RLJob {name} cannot be read: {error.errors()[0]['msg']}", file=sys.stderr)
