# The project's own image: the operator, and the base of role images, which add torch and the user's code.
# BASE is any Debian 12 or Ubuntu image with Python 3.11 and pip; the wheels are built by `make image`.
ARG BASE=docker.io/library/python:3.11-slim
FROM ${BASE}
RUN --mount=type=bind,source=wheels,target=/wheels \
    python3 -m pip install --no-cache-dir --no-index --find-links /wheels --break-system-packages \
    "robustrl[agent,operator]" \
    && mkdir -p /run/robustrl /workspace
ENV PYTHONUNBUFFERED=1
WORKDIR /workspace
