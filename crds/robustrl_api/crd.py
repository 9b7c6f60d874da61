"""Renders the CustomResourceDefinition from the pydantic models. Run as a module, it prints it.

Pydantic writes JSON schema; the API server wants a *structural* schema: no references, no nullable unions, no
titles, list-maps declared. The differences are bridged here and nowhere else.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import yaml

from robustrl_api.job import RLJob
from robustrl_api.names import GROUP, KIND, PLURAL, VERSION
from robustrl_api.rules import RULES

Schema = dict[str, Any]

LIST_MAPS = {
    "status.conditions": ["type"],
    "status.roles": ["name"],
    "status.members": ["rank"],
    "spec.services": ["name"],
}
COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    ("Step", "integer", ".status.step", 0),
    ("Of", "integer", ".spec.steps", 0),
    ("Trainers", "integer", '.status.roles[?(@.name=="trainer")].ready', 0),
    ("Rollouts", "integer", '.status.roles[?(@.name=="rollout")].ready', 0),
    ("Epoch", "integer", ".status.epoch", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Recovering", "string", '.status.conditions[?(@.type=="Recovering")].reason', 1),
    ("Last-Fault", "string", ".status.incidents[-1:].cause", 1),
    ("Strategy", "string", ".spec.recovery.strategy", 1),
)


def crd() -> Schema:
    """The CustomResourceDefinition as an object ready for the API server."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower(),
                      "shortNames": ["rlj"]},
            "versions": [_version()],
        },
    }  # fmt: skip


def _version() -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": open_api_schema()},
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
            for name, kind, path, priority in COLUMNS
        ],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.rollout.replicas",
                "statusReplicasPath": ".status.rolloutReplicas",
                "labelSelectorPath": ".status.rolloutSelector",
            },
        },
    }


def open_api_schema() -> Schema:
    """The structural schema of an RLJob, CEL rules included."""
    raw = RLJob.model_json_schema(by_alias=True)
    schema = _structural(raw, raw.get("$defs", {}))
    properties = schema["properties"]
    properties["apiVersion"] = {"type": "string", "description": "Version of the API."}
    properties["kind"] = {"type": "string", "description": "Kind of the object."}
    properties["metadata"] = {"type": "object"}
    properties["status"].pop("default", None)
    schema["required"] = ["spec"]
    schema["description"] = (RLJob.__doc__ or "").strip()
    _mark_lists(schema, "")
    for rule in RULES:
        node = _at(schema, rule.path)
        node.setdefault("x-kubernetes-validations", []).append({"rule": rule.rule, "message": rule.message})
    return schema


def _structural(node: Schema, definitions: Schema) -> Schema:
    """`node` with references resolved and what a structural schema forbids taken out."""
    node = _resolve(deepcopy(node), definitions)
    if node.get("additionalProperties") is True:
        node["x-kubernetes-preserve-unknown-fields"] = True
    if not isinstance(node.get("additionalProperties"), dict):
        node.pop("additionalProperties", None)
    for key in ("title", "$defs", "examples", "propertyNames"):
        node.pop(key, None)
    if "default" in node:
        node["default"] = _without_null(node["default"])
    if "properties" in node:
        node["properties"] = {k: _structural(v, definitions) for k, v in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            node[key] = _structural(node[key], definitions)
    return node


def _resolve(node: Schema, definitions: Schema) -> Schema:
    if "$ref" in node:
        target = deepcopy(definitions[node.pop("$ref").rsplit("/", 1)[1]])
        return _resolve(target | node, definitions)
    if "anyOf" in node:
        return _collapse_union(node, definitions)
    return node


def _collapse_union(node: Schema, definitions: Schema) -> Schema:
    """Optional[X] becomes X (absent means unset); int | str becomes an int-or-string."""
    choices = [choice for choice in node.pop("anyOf") if choice.get("type") != "null"]
    if node.get("default", 0) is None:
        node.pop("default")
    if {choice.get("type") for choice in choices} == {"integer", "string"}:
        return {
            **node,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
        }
    (only,) = choices
    return _resolve(only | node, definitions)


def _without_null(default: Any) -> Any:
    """A default as the API server takes it: what is unset is absent, never null."""
    if isinstance(default, dict):
        return {key: _without_null(value) for key, value in default.items() if value is not None}
    return default


def _mark_lists(node: Schema, path: str) -> None:
    if node.get("type") == "array":
        keys = LIST_MAPS.get(path)
        node["x-kubernetes-list-type"] = "map" if keys else "atomic"
        if keys:
            node["x-kubernetes-list-map-keys"] = keys
            required = set(node["items"].get("required", [])) | set(keys)
            node["items"]["required"] = sorted(required)
            for key in keys:
                node["items"]["properties"][key].pop("default", None)
        _mark_lists(node["items"], path + "[]")
    for name, child in node.get("properties", {}).items():
        _mark_lists(child, f"{path}.{name}".lstrip("."))


def _at(schema: Schema, path: str) -> Schema:
    node = schema
    for name in filter(None, path.split(".")):
        node = node["properties"][name.removesuffix("[]")]
        node = node["items"] if name.endswith("[]") else node
    return node


def render() -> str:
    """The CRD as YAML."""
    return yaml.safe_dump(crd(), sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    print(render(), end="")
