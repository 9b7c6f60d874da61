"""The local body: the same brain and the same agents, as processes on one machine. No Kubernetes, no root."""
