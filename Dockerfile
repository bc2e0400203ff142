# `labeldeconv serve` for a run directory that is mounted at /run:
#     docker build -t labeldeconv .
#     docker run -p 8000:8000 -e LABELDECONV_TOKEN -v $PWD/runs/papers:/run:ro labeldeconv
FROM python:3.11-slim

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 \
    OMP_WAIT_POLICY=PASSIVE KMP_BLOCKTIME=0 HF_HUB_OFFLINE=1 \
    LABELDECONV_CACHE=/var/cache/labeldeconv NUMBA_CACHE_DIR=/var/cache/labeldeconv/numba

# torch first and pinned, as the Makefile does: the CPU build, where a range would fetch gigabytes of CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install torch==2.13.0 --index-url "$TORCH_INDEX"

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY labeldeconv ./labeldeconv
RUN pip install '.[serve,minilm]'

RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin serve \
 && mkdir -p /var/cache/labeldeconv && chown serve /var/cache/labeldeconv
USER serve
WORKDIR /

EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["labeldeconv", "serve"]
CMD ["/run", "--host", "0.0.0.0", "--port", "8000"]
