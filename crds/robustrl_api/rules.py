"""CEL rules of the RLJob CRD: what no single field's schema can say. The API server enforces them.

Each message names the field and the remedy, because it is all that `kubectl apply` shows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that must hold for the object at `path` (dotted, from the object's root; [] for each item)."""

    path: str
    rule: str
    message: str


def _immutable(field: str, remedy: str) -> Rule:
    return Rule("spec", f"self.{field} == oldSelf.{field}", f"spec.{field} cannot change: {remedy}")


def _only_suspended(field: str) -> Rule:
    """Pods have it from when they were made: some would have the old value, and some the new one."""
    return Rule(
        "spec",
        f"self.{field} == oldSelf.{field} || oldSelf.suspend",
        f"spec.{field} cannot change while the job has pods, which were made with it: set spec.suspend, change it, "
        "and let the job go on",
    )


def _own_labels(path: str) -> Rule:
    """Ours would win anyway; refusing says so."""
    role, template = path.split(".")
    return Rule(
        f"spec.{path}",
        "!has(self.metadata) || self.metadata.labels.all(key, !key.startsWith('robustrl.dev/'))",
        f"spec.{role}.{template}.metadata.labels has a key under robustrl.dev/, which is the operator's: remove it",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "spec",
        "self.rollout.minReplicas <= self.rollout.replicas",
        "spec.rollout.minReplicas is larger than spec.rollout.replicas: lower minReplicas or add replicas",
    ),
    Rule(
        "spec",
        "self.mode != 'Sync' || self.maxStaleness == 0",
        "spec.maxStaleness must be 0 in Sync mode, where no trajectory is older than the weights: "
        "set it to 0 or use mode Async",
    ),
    Rule(
        "spec",
        "self.recovery.standby.mode == 'Off' || !has(self.rollout.template) || "
        "self.rollout.template.spec.containers[0].image == self.trainer.template.spec.containers[0].image",
        "spec.rollout.template has another image than spec.trainer.template, so a rollout could not become a "
        "trainer: use one image, or set spec.recovery.standby.mode to Off",
    ),
    Rule(
        "spec",
        "self.recovery.standby.mode == 'Off' || !has(self.rollout.template) || "
        "self.rollout.template.spec.containers[0].resources.limits == "
        "self.trainer.template.spec.containers[0].resources.limits",
        "spec.rollout.template has other resource limits than spec.trainer.template, so a rollout could not "
        "become a trainer: use the same limits, or set spec.recovery.standby.mode to Off",
    ),
    Rule(
        "spec.trainer",
        "size(self.template.spec.containers[0].command) > 0",
        "spec.trainer.template.spec.containers[0].command is empty: give the training script's command, "
        "such as [python, train.py]",
    ),
    Rule(
        "spec.trainer",
        "self.parallelism.tensor * self.parallelism.pipeline * self.parallelism.context "
        "<= self.replicas * self.processesPerPod",
        "spec.trainer.parallelism (tensor * pipeline * context) needs more processes than spec.trainer.replicas "
        "* processesPerPod gives: add replicas or lower the parallelism",
    ),
    Rule(
        "spec.rollout.engine",
        "self.type != 'Custom' || size(self.command) > 0",
        "spec.rollout.engine.command is empty: type Custom needs the command that starts your engine",
    ),
    Rule(
        "spec.rollout.engine",
        "self.type != 'Embedded' || size(self.command) > 0 || "
        "self.model.matches('^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$')",
        "spec.rollout.engine.model must name the model's factory as MODULE:FUNCTION for type Embedded, "
        "such as sort4.model:build_model",
    ),
    Rule(
        "spec.rollout.engine",
        "!(self.type in ['SGLang', 'VLLM']) || size(self.command) > 0 || size(self.model) > 0",
        "spec.rollout.engine.model is empty: give the model's path in the image, or a whole engine.command",
    ),
    *(_own_labels(path) for path in ("trainer.template", "rollout.template", "manager.template")),
    Rule(
        "spec.services[]",
        "!(self.name in ['trainer', 'rollout', 'manager', 'service', 'fenced'])",
        "spec.services has an entry with the name of a role: rename it",
    ),
    Rule(
        "spec.recovery.backoff",
        "self.baseDelaySeconds <= self.maxDelaySeconds",
        "spec.recovery.backoff.baseDelaySeconds is larger than maxDelaySeconds: lower it",
    ),
    _immutable("seed", "another seed is another job; create a new RLJob"),
    _immutable("data", "the ledger's trajectories came from it; create a new RLJob"),
    _immutable("mode", "create a new RLJob"),
    _immutable("managedBy", "create a new RLJob"),
    Rule(
        "spec",
        "self.trainer.replicas == oldSelf.trainer.replicas "
        "&& self.trainer.processesPerPod == oldSelf.trainer.processesPerPod",
        "spec.trainer.replicas and processesPerPod cannot change, since the batch is split by them: create a new RLJob",
    ),
    Rule(
        "spec",
        "self.manager.ledger == oldSelf.manager.ledger",
        "spec.manager.ledger cannot change while it holds the job's history: create a new RLJob",
    ),
    _only_suspended("steps"),
    _only_suspended("manager.port"),
    Rule(
        "",
        "size(self.metadata.name) <= 40",
        "metadata.name is longer than 40 characters, and pods are named after it: shorten it",
    ),
)
