"""Which pod a person means: by name, by role and index, or by rank."""

from __future__ import annotations

import re
from collections.abc import Sequence

from robustrl_api.names import Role

_INDEX = re.compile(r"(?:(?P<role>[a-z]+)[/ ])?(?P<index>\d{1,5})")


def index_of(target: str, role: Role, pods: Sequence[str]) -> int:
    """The place among `pods`, which play `role`, of the one that `target` means.

    Raises:
        LookupError: it means none of them; the text says what there is.
    """
    text = target.strip()
    if text in ("", role):
        return -1
    if text in pods:
        return pods.index(text)
    found = _INDEX.fullmatch(text)
    if found is None:
        raise LookupError(f"{text!r} is no {role}: there are {', '.join(pods) or 'none'}")
    named = Role.TRAINER if found["role"] == "rank" else found["role"] or role
    if named != role:
        raise LookupError(f"{text!r}: this kind of fault strikes a {role}, not a {named}")
    if int(found["index"]) >= len(pods):
        raise LookupError(f"there is no {role} {found['index']}: there are {len(pods)}, counted from 0")
    return int(found["index"])
