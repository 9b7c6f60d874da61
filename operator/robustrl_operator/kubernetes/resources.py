"""The RLJob as lightkube addresses it."""

from __future__ import annotations

from lightkube import ApiError
from lightkube.generic_resource import create_namespaced_resource

from robustrl_api.names import GROUP, KIND, PLURAL, VERSION

RLJobResource = create_namespaced_resource(GROUP, VERSION, KIND, PLURAL)

FIELD_MANAGER = "robustrl-operator"


def is_gone(error: ApiError, name: str) -> bool:
    """Whether there is no such object. A server that has just started answers 404 as well, and names none."""
    details = error.status.details
    return error.status.code == 404 and details is not None and details.name == name
