"""Prints docs/api.md: the RLJob's fields as the CRD has them. `make docs` writes it, `make lint` compares it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from robustrl_api.crd import COLUMNS, open_api_schema
from robustrl_api.names import API_VERSION, KIND
from robustrl_api.rules import RULES

Schema = dict[str, Any]

HEAD = f"""# RLJob

`{API_VERSION}`, kind `{KIND}`, short name `rlj`, namespaced.
Written by `make docs` from the models in `crds/robustrl_api`; `kubectl explain rljob.spec` says the same.
An example with few fields is `examples/sort4/rljob.yaml`.
A field without a default and not marked required is optional.
Every field is acted on; what is not there yet is in [design-notes.md](design-notes.md#not-there-yet).
What status says to the person who reads it is in [recovery.md](recovery.md).
"""
TEMPLATE = "pod template"
TEMPLATE_TEXT = """A PodTemplateSpec. RobustRL reads the fields below; every other field of a pod's spec is passed
on as it is, except `restartPolicy` (always `Always`) and `automountServiceAccountToken` (always false)."""


def main() -> None:
    """Print the page."""
    schema = open_api_schema()
    sections = [HEAD, *_sections("spec", schema["properties"]["spec"])]
    template = schema["properties"]["spec"]["properties"]["trainer"]["properties"]["template"]
    sections += [f"## {TEMPLATE}\n\n{TEMPLATE_TEXT}\n\n{_table(template)}", *_children("template", template)]
    sections += [*_sections("status", schema["properties"]["status"]), _rules(), _columns()]
    print("\n".join(section.strip() + "\n" for section in sections), end="")


def _sections(path: str, node: Schema) -> Iterator[str]:
    """A section for an object, then one for each object inside it."""
    text = f"{_line(node['description'])}\n\n" if path.count(".") == 0 and node.get("description") else ""
    yield f"## {path}\n\n{text}{_table(node)}"
    yield from _children(path, node)


def _children(path: str, node: Schema) -> Iterator[str]:
    for name, child in node["properties"].items():
        if name == "template":
            continue
        inner, suffix = (child["items"], "[]") if child.get("type") == "array" else (child, "")
        if inner.get("properties"):
            yield from _sections(f"{path}.{name}{suffix}", inner)


def _table(node: Schema) -> str:
    rows = [_row(name, child, name in node.get("required", [])) for name, child in node["properties"].items()]
    return "\n".join(["| field | type | default | |", "|---|---|---|---|", *rows])


def _row(name: str, node: Schema, required: bool) -> str:
    default = "required" if required else _default(node)
    return f"| `{name}` | {_type(name, node)} | {default} | {_line(node.get('description', ''))} |"


def _default(node: Schema) -> str:
    value = node.get("default")
    if value is None or value in ({}, [], "") or node.get("properties"):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(name: str, node: Schema) -> str:
    if name == "template":
        return f"[{TEMPLATE}](#{TEMPLATE.replace(' ', '-')})"
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    if node.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if node.get("type") == "array":
        kind = _type("", node["items"])
        return f"list of {kind}" if kind != "object" else "list"
    if isinstance(node.get("additionalProperties"), dict):
        return f"map of {_type('', node['additionalProperties'])}"
    return f"{node['type']}{_bounds(node)}"


def _bounds(node: Schema) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}" if low != high else f", {low}"
    return f", at least {low}" if low is not None else ""


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _rules() -> str:
    head = "## Refused by the API server\n\nRules beyond the fields' own bounds, in the server's words:\n"
    return "\n".join([head, *(f"- `{rule.path or 'the object'}`: {_line(rule.message)}." for rule in RULES)])


def _columns() -> str:
    rows = [f"| {name} | `{path}` | {'with `-o wide`' if wide else ''} |" for name, _, path, wide in COLUMNS]
    return "\n".join(
        ["## Columns of `kubectl get rljobs`", "", "| column | from | |", "|---|---|---|", *(r.strip() for r in rows)]
    )


if __name__ == "__main__":
    main()
