"""The Kubernetes API conventions, as a lint over our CRD (what kube-api-linter checks for Go types)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from robustrl_api.crd import crd

Schema = dict[str, Any]

VERSION = crd()["spec"]["versions"][0]
ROOT: Schema = VERSION["schema"]["openAPIV3Schema"]
BOOLEANS = {"spec.suspend"}
"""Booleans cannot grow a third value; these need none."""
KUBERNETES_TYPES = {"metadata"}


def walk(node: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every field with its path; [] stands for an item, {} for a map's value."""
    if path:
        yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}".lstrip("."))
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from walk(node["additionalProperties"], f"{path}{{}}")


FIELDS = [(path, node) for path, node in walk(ROOT) if path not in KUBERNETES_TYPES]
NAMED = [(path, node) for path, node in FIELDS if not path.endswith(("[]", "{}"))]


def failing(fields: list[tuple[str, Schema]], bad: Any) -> list[str]:
    return [path for path, node in fields if bad(path, node)]


def unbounded_text(path: str, node: Schema) -> bool:
    text = node.get("type") == "string" and "enum" not in node
    return text and "maxLength" not in node and path not in ("apiVersion", "kind") and not path.endswith("{}")


def has_null(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and any(map(has_null, value.values())))


def unbounded_number(path: str, node: Schema) -> bool:
    return node.get("type") == "integer" and "minimum" not in node


LINTS: dict[str, tuple[list[tuple[str, Schema]], Any]] = {
    "every field is described": (NAMED, lambda p, n: not n.get("description")),
    "descriptions are sentences": (NAMED, lambda p, n: not n.get("description", ".").strip().endswith((".", '"'))),
    "texts are bounded": (FIELDS, unbounded_text),
    "lists are bounded": (FIELDS, lambda p, n: n.get("type") == "array" and "maxItems" not in n),
    "maps are bounded": (FIELDS, lambda p, n: "additionalProperties" in n and "maxProperties" not in n),
    "lists say how they merge": (FIELDS, lambda p, n: n.get("type") == "array" and "x-kubernetes-list-type" not in n),
    "no floats": (FIELDS, lambda p, n: n.get("type") == "number"),
    "no booleans but the known ones": (FIELDS, lambda p, n: n.get("type") == "boolean" and p not in BOOLEANS),
    "integers have bounds": (FIELDS, unbounded_number),
    "integers of the spec end somewhere": (
        [(p, n) for p, n in FIELDS if p.startswith("spec") and not p.endswith("{}")],
        lambda p, n: n.get("type") == "integer" and "maximum" not in n,
    ),
    "camelCase": (NAMED, lambda p, n: not re.fullmatch(r"[a-z][A-Za-z0-9]*", re.split(r"[.\]}]", p)[-1])),
    "enum values are CamelCase": (FIELDS, lambda p, n: any(not re.match(r"[A-Z]", v) for v in n.get("enum", ()))),
    "durations are integers that name their unit": (NAMED, lambda p, n: re.search(r"(?i)(timeout|delay|window)$", p)),
    "no null in defaults": (FIELDS, lambda p, n: has_null(n.get("default", 0))),
    "no references and no unions but int-or-string": (
        FIELDS,
        lambda p, n: "$ref" in n or ("anyOf" in n and not n.get("x-kubernetes-int-or-string")),
    ),
    "what is required has no default": (
        FIELDS,
        lambda p, n: any("default" in n["properties"][name] for name in n.get("required", ()) if "properties" in n),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LINTS)
def test_convention(name: str) -> None:
    fields, bad = LINTS[name]
    assert failing(fields, bad) == []


def test_the_lint_sees_the_whole_api() -> None:
    """A lint over nothing finds nothing: some deep fields that it must have walked."""
    paths = {path for path, _ in FIELDS}
    assert {
        "spec.trainer.template.spec.containers[].resources.limits{}",
        "spec.services[].template.metadata.labels",
        "status.incidents[].evidence",
    } <= paths


def test_conditions_have_kubernetes_shape() -> None:
    """Tools such as `kubectl wait --for=condition=` rely on it."""
    conditions = ROOT["properties"]["status"]["properties"]["conditions"]
    item = conditions["items"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert {"type", "status", "reason", "lastTransitionTime"} <= set(item["required"])
    assert item["properties"]["status"]["enum"] == ["True", "False", "Unknown"]
    assert item["properties"]["lastTransitionTime"]["format"] == "date-time"
    assert item["properties"]["reason"]["pattern"]


def test_list_maps_require_their_keys_without_default() -> None:
    """The API server refuses a list-map whose key may be absent."""
    maps = [(path, node) for path, node in FIELDS if node.get("x-kubernetes-list-type") == "map"]
    assert len(maps) == 4
    for path, node in maps:
        for key in node["x-kubernetes-list-map-keys"]:
            assert key in node["items"]["required"], path
            assert "default" not in node["items"]["properties"][key], path


def test_status_is_a_subresource() -> None:
    assert VERSION["subresources"]["status"] == {}


def test_scale_addresses_rollouts_that_always_have_a_number() -> None:
    scale = VERSION["subresources"]["scale"]
    fields = dict(FIELDS)
    assert "default" in fields[scale["specReplicasPath"].lstrip(".")]
    assert fields[scale["statusReplicasPath"].lstrip(".")]["type"] == "integer"
    assert fields[scale["labelSelectorPath"].lstrip(".")]["type"] == "string"


def test_columns_address_fields_that_exist() -> None:
    paths = {path for path, _ in FIELDS} | {"metadata.creationTimestamp"}
    for column in VERSION["additionalPrinterColumns"]:
        plain = re.sub(r"\[[^\]]*\]", "[]", column["jsonPath"]).lstrip(".")
        assert plain in paths, column["name"]
        if "conditions" in column["jsonPath"]:
            assert "[?(@.type==" in column["jsonPath"], "conditions are found by type, never by index"


def test_every_rule_has_a_message_with_a_field_and_a_remedy() -> None:
    rules = [rule for _, node in [("", ROOT), *walk(ROOT)] for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) > 15
    for rule in rules:
        assert re.match(r"(spec|metadata)\.\w+", rule["message"]), rule
        assert re.search(r"[:,] ", rule["message"]), f"no remedy: {rule['message']}"
