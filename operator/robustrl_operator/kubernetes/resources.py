"""The RLJob as lightkube addresses it."""

from __future__ import annotations

from lightkube.generic_resource import create_namespaced_resource

from robustrl_api.names import GROUP, KIND, PLURAL, VERSION

RLJobResource = create_namespaced_resource(GROUP, VERSION, KIND, PLURAL)

FIELD_MANAGER = "robustrl-operator"
