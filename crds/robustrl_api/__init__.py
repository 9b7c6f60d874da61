"""The RLJob API and the control channel's messages: pydantic models, the one source of the CRD."""
