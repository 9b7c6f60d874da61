"""The RLJob API and the control channel's messages: pydantic models, the one source of the CRD."""

from robustrl_api.control import AgentReport, Assignment
from robustrl_api.job import RLJob
from robustrl_api.names import Role
from robustrl_api.spec import RLJobSpec
from robustrl_api.status import RLJobStatus
from robustrl_api.version import Version

__all__ = ["AgentReport", "Assignment", "RLJob", "RLJobSpec", "RLJobStatus", "Role", "Version"]
