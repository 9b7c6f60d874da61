"""An API server of a few kinds, over HTTP, so that kopf and lightkube run as they are.

It stores objects by path, numbers their versions, refuses writes to a version that is not the stored one, merges
patches, and serves lists and watches. It validates nothing and runs no controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import yaml
from aiohttp import web

Object = dict[str, Any]

KINDS: dict[str, list[tuple[str, str, bool]]] = {
    "v1": [
        ("pods", "Pod", True),
        ("nodes", "Node", False),
        ("namespaces", "Namespace", False),
        ("events", "Event", True),
        ("secrets", "Secret", True),
        ("configmaps", "ConfigMap", True),
    ],
    "coordination.k8s.io/v1": [("leases", "Lease", True)],
    "robustrl.dev/v1alpha1": [("rljobs", "RLJob", True)],
}


class FakeApi:
    """The server and what it holds.

    Attributes:
        writes: (monotonic seconds, method, path) of each write that was served.
        held: (method, path) of each write, other than to leases, that came while it was away.
        refusing: path -> how many of the next writes to it are answered with an internal error.
        away: while set, calls are held; one whose caller hangs up meanwhile is dropped, as the real server drops it.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[tuple[float, str, str]] = []
        self.held: list[tuple[str, str]] = []
        self.refusing: dict[str, int] = {}
        self.away = False
        self.port = 0
        self._version = 100
        self._changes: list[tuple[str, str, Object]] = []
        self._changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeApi]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    def kubeconfig(self) -> str:
        return yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "ns"}}],
        })  # fmt: skip

    def put(self, path: str, obj: Object) -> Object:
        """Store an object as somebody else would."""
        self._version += 1
        kind = "MODIFIED" if path in self.objects else "ADDED"
        obj = copy.deepcopy(obj)
        meta = obj.setdefault("metadata", {})
        meta.setdefault("uid", str(uuid.uuid4()))
        meta.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        meta["resourceVersion"] = str(self._version)
        self.objects[path] = obj
        self._tell(kind, path, obj)
        return obj

    def remove(self, path: str) -> Object:
        self._version += 1
        obj = self.objects.pop(path)
        obj["metadata"]["resourceVersion"] = str(self._version)
        self._tell("DELETED", path, obj)
        return obj

    def under(self, prefix: str) -> list[Object]:
        """Objects whose path begins so."""
        return [obj for path, obj in self.objects.items() if path.startswith(prefix)]

    def _tell(self, change: str, path: str, obj: Object) -> None:
        self._changes.append((change, path, copy.deepcopy(obj)))
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.away and request.method != "GET" and "leases" not in request.path:
            self.held.append((request.method, request.path))
        while self.away:
            await asyncio.sleep(0.05)
            if request.transport is None or request.transport.is_closing():
                raise web.HTTPServiceUnavailable(reason="who asked has hung up")
        path = request.path.rstrip("/")
        known = _discovery(path)
        if known is not None:
            return _json(known)
        group, plural, name = _parts(path)
        if request.method == "GET" and not name:
            return await (self._watch if "watch" in request.query else self._list)(request, group, plural)
        if request.method == "GET":
            found = self.objects.get(path)
            return _json(found) if found else _problem(404, path)
        return await self._write(request, path)

    async def _write(self, request: web.Request, path: str) -> web.Response:
        sent = await request.json() if request.can_read_body else {}
        path = path.removesuffix("/status")
        if self.refusing.get(path, 0) > 0:
            self.refusing[path] -= 1
            return _problem(500, path)
        self.writes.append((time.monotonic(), request.method, request.path))
        if path.endswith("/eviction"):
            return self._evict(path.removesuffix("/eviction"), sent)
        if request.method == "POST":
            meta = sent["metadata"]
            name = meta.setdefault("name", f"{meta.get('generateName', '')}{uuid.uuid4().hex[:6]}")
            path = f"{path}/{name}"
            return _problem(409, path) if path in self.objects else _json(self.put(path, sent))
        applied = "apply" in request.content_type
        if path not in self.objects and not applied:
            return _problem(404, path)
        if request.method == "DELETE":
            return _json(self.remove(path))
        before = self.objects.get(path, {})
        asked = sent.get("metadata", {}).get("resourceVersion")
        if asked and asked != before["metadata"]["resourceVersion"]:
            return _problem(409, path)
        return _json(self.put(path, sent if request.method == "PUT" else _merge(before, sent)))

    def _evict(self, path: str, sent: Object) -> web.Response:
        """There are no budgets here."""
        if path not in self.objects:
            return _problem(404, path)
        if sent["deleteOptions"]["preconditions"]["uid"] != self.objects[path]["metadata"]["uid"]:
            return _problem(409, path)
        self.remove(path)
        return _json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    async def _list(self, request: web.Request, group: str, plural: str) -> web.Response:
        kind = next(kind for name, kind, _ in KINDS[group] if name == plural)
        found = [obj for path, obj in self.objects.items() if _matches(path, obj, group, plural, request)]
        return _json({
            "apiVersion": group, "kind": f"{kind}List", "metadata": {"resourceVersion": str(self._version)},
            "items": found,
        })  # fmt: skip

    async def _watch(self, request: web.Request, group: str, plural: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        since, seen = int(request.query.get("resourceVersion") or 0), 0
        # Who watches goes when it likes.
        with contextlib.suppress(ConnectionError):
            while True:
                changed = self._changed
                for change, path, obj in self._changes[seen:]:
                    newer = int(obj["metadata"]["resourceVersion"]) > since
                    if newer and _matches(path, obj, group, plural, request):
                        await response.write(json.dumps({"type": change, "object": obj}).encode() + b"\n")
                seen = len(self._changes)
                await changed.wait()
        return response


def _discovery(path: str) -> Object | None:
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [group.split("/") for group in KINDS if "/" in group]
        versions = [{"groupVersion": f"{group}/{version}", "version": version} for group, version in groups]
        return {"kind": "APIGroupList", "groups": [
            {"name": group, "versions": [each], "preferredVersion": each}
            for (group, _), each in zip(groups, versions, strict=True)
        ]}  # fmt: skip
    group = path.removeprefix("/apis/").removeprefix("/api/")
    if group not in KINDS:
        return None
    verbs = ["list", "watch", "get", "patch", "create", "update", "delete"]
    return {"kind": "APIResourceList", "groupVersion": group, "resources": [
        {"name": name, "kind": kind, "namespaced": namespaced, "verbs": verbs, "singularName": kind.lower(),
         "shortNames": [], "categories": []}
        for name, kind, namespaced in KINDS[group]
    ]}  # fmt: skip


def _parts(path: str) -> tuple[str, str, str]:
    """Group and version, plural, name; the name is empty where all of them are meant."""
    parts = path.strip("/").split("/")
    parts, group = (parts[2:], parts[1]) if parts[0] == "api" else (parts[3:], "/".join(parts[1:3]))
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return group, parts[0], parts[1] if len(parts) > 1 else ""


def _matches(path: str, obj: Object, group: str, plural: str, request: web.Request) -> bool:
    if _parts(path)[:2] != (group, plural) or not path.startswith(_scope(request.path)):
        return False
    labels = obj["metadata"].get("labels") or {}
    for wanted in filter(None, request.query.get("labelSelector", "").split(",")):
        name, is_equal, value = wanted.partition("=")
        if name not in labels or (is_equal and labels[name] != value):
            return False
    return True


def _scope(path: str) -> str:
    return path if "/namespaces/" in path else ""


def _merge(base: Object, patch: Object) -> Object:
    merged = dict(base)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key) or {}, value) if isinstance(value, dict) else value
    return merged


def _json(obj: Object, status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(obj), status=status, headers={"Content-Type": "application/json"})


def _problem(code: int, path: str) -> web.Response:
    reason = {404: "NotFound", 409: "Conflict", 500: "InternalError"}[code]
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": f"{reason}: {path}", "details": {"name": path.rpartition("/")[2]}}  # fmt: skip
    return _json(body, status=code)
