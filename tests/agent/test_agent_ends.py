"""An agent that fails ends: its container begins anew, and nobody waits for one that only seems to be there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from robustrl_api.names import Role
from robustrl_api.pod_config import POD_CONFIG_ENV, PodConfig


def test_an_agent_whose_port_is_taken_ends_and_names_it(tmp_path: Path) -> None:
    """Threads of UCX's and of its child processes kept it for ever, silent, and its container with it."""
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        port, agent_port = taken.getsockname()[1] - 1, free.getsockname()[1]
        free.close()
        config = PodConfig(
            job="j", namespace="n", role=Role.ROLLOUT, control_url="http://127.0.0.1:1", memory_dir=str(tmp_path),
            steps=1, weight_port=port, agent_port=agent_port, warm_worker=True,
        )  # fmt: skip
        environment = os.environ | {
            POD_CONFIG_ENV: config.model_dump_json(by_alias=True),
            "ROBUSTRL_POD_NAME": "j-rollout-0",
            "ROBUSTRL_POD_IP": "127.0.0.1",
        }
        program = [sys.executable, "-m", "robustrl.supervisor.cli", "run"]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert f"port {port + 1}" in done.stderr
