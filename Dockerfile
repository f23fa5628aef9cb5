# semel: the broker, the client, its commands and the console. `docker run -p 127.0.0.1:9092:9092 semel` is a broker to try;
# deploy/docker-compose.single.yml is one beside an application, docker-compose.yml a cluster of three (docs/docker.md).
# The target `demo` adds the demo and its flights; the target `spark` has a Spark with a Java of its own, for the masters,
# workers and drivers of pipelines.

ARG PYTHON=3.13-slim-trixie

FROM python:${PYTHON} AS wheels
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY storage storage
COPY broker broker
COPY client client
COPY console console
COPY pipeline pipeline
RUN python -m venv --without-pip /opt/semel \
 && pip --python /opt/semel/bin/python install --no-cache-dir '.[broker,cluster,console]'

FROM wheels AS demo-wheels
RUN pip --python /opt/semel/bin/python install --no-cache-dir '.[demo]'

FROM wheels AS spark-wheels
RUN pip --python /opt/semel/bin/python install --no-cache-dir '.[spark,demo]'

# Only the environment goes on from here: no source tree, no pip of its own, no cache.
FROM python:${PYTHON} AS runtime
RUN groupadd --system --gid 10001 semel \
 && useradd --system --uid 10001 --gid semel --home-dir /var/lib/semel --shell /usr/sbin/nologin semel \
 && install --directory --owner=semel --group=semel --mode=0750 /var/lib/semel
ENV PATH=/opt/semel/bin:$PATH \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/semel
USER 10001:10001

LABEL org.opencontainers.image.title="semel" \
      org.opencontainers.image.description="A Kafka-wire-compatible log broker, built around exactly once" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM runtime AS demo
COPY --from=demo-wheels /opt/semel /opt/semel
COPY demo /opt/demo/demo
ENV PYTHONPATH=/opt/demo
ENTRYPOINT ["python", "-m", "demo.elsewhere"]

FROM runtime AS spark
COPY --from=spark-wheels /opt/semel /opt/semel
COPY pipeline/flights.toml /opt/jobs/pipeline/flights.toml
WORKDIR /opt/jobs
USER root
RUN install --directory --owner=semel --group=semel --mode=0750 /var/lib/spark
USER 10001:10001
ENTRYPOINT ["python", "-m", "pyspark_semel.standalone"]

FROM runtime AS broker
COPY --from=wheels /opt/semel /opt/semel
ARG REVISION=unknown
LABEL org.opencontainers.image.revision=$REVISION
# As variables, so that `docker run semel serve --set ...` keeps them. SEMEL_LISTENERS replaces the two host names.
ENV SEMEL_LOG_DIR=/var/lib/semel \
    SEMEL_HOST_NAME=0.0.0.0 \
    SEMEL_ADVERTISED_HOST_NAME=127.0.0.1 \
    SEMEL_METRICS_LISTENER=0.0.0.0:9404
VOLUME /var/lib/semel
EXPOSE 9092 9093 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=6s --start-period=30s --start-interval=1s --retries=3 \
    CMD ["python", "-m", "semel_broker.health", "127.0.0.1:9092"]
ENTRYPOINT ["semel"]
CMD ["serve"]
