"""The operator's own settings, from the environment that the Helm chart sets."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the operator runs and what it serves."""

    namespace: str
    """The operator's own namespace."""
    watch_namespace: str
    """The one namespace it serves; empty for all."""
    service: str
    """Name of the Service in front of the control endpoint."""
    control_port: int = 8443
    http_port: int = 8080
    """Metrics, health and the jobs' live view, inside the cluster."""
    log_level: str = "INFO"
    pod: str = ""
    """Name of the operator's own pod: its identity among operators."""
    node_agents: str = ""
    """Service account of the node agents, in the operator's namespace; empty where there are none."""

    @classmethod
    def from_environment(cls) -> Settings:
        return cls(
            namespace=os.environ.get("ROBUSTRL_NAMESPACE", "robustrl-system"),
            watch_namespace=os.environ.get("ROBUSTRL_WATCH_NAMESPACE", ""),
            service=os.environ.get("ROBUSTRL_SERVICE", "robustrl-operator"),
            pod=os.environ.get("ROBUSTRL_POD_NAME", "") or socket.gethostname(),
            node_agents=os.environ.get("ROBUSTRL_NODE_AGENTS", ""),
            log_level=os.environ.get("ROBUSTRL_LOG_LEVEL", "INFO"),
        )

    @property
    def host(self) -> str:
        """DNS name of the control endpoint."""
        return f"{self.service}.{self.namespace}.svc"

    @property
    def control_url(self) -> str:
        return f"https://{self.host}:{self.control_port}"
