# syntax=docker/dockerfile:1
#
# Two images:
#
#   docker build -t longshore .                             the server alone, static, on nothing else
#   docker build -t longshore:runtime --target runtime .    on Debian with Node, Python, uv and git, for stdio upstreams
#                                                           and commands
#
# A program that was built elsewhere goes in with `--build-arg FROM=prebuilt`: `deploy/image.sh` does that, and checks
# what comes out.

ARG RUST=1.95
ARG DEBIAN=bookworm
# That of the stage `runtime`: what is run there may want a newer Node, and the program needs nothing of it.
ARG RUNTIME_DEBIAN=trixie
# `build`, or `prebuilt` for what lies in target/image/.
ARG FROM=build

FROM rust:${RUST}-slim-${DEBIAN} AS toolchain
# `deploy/program.sh` says what for.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential ca-certificates cmake curl nghttp2-client openssl valgrind \
    && rm -rf /var/lib/apt/lists/* \
    && rustup component add llvm-tools \
    && cargo install --locked cargo-auditable --version 0.7.7
WORKDIR /src

# As .cargo/config.toml, which says why.
ENV AWS_LC_SYS_NO_JITTER_ENTROPY=1

# The manifests of the internal crates alone.
FROM toolchain AS manifests
COPY crates crates
RUN find crates -type f ! -name Cargo.toml -delete && find crates -type d -empty -delete

# What the first of the two builds depends on is a layer of its own: it is built again when a manifest changes, not when the
# code does. The second one is by a profile, which changes with the code.
FROM toolchain AS dependencies
COPY Cargo.toml Cargo.lock ./
COPY deploy/program.sh deploy/
COPY --from=manifests /src/crates crates
COPY macros/Cargo.toml macros/
COPY loadtest/Cargo.toml loadtest/
COPY benches/Cargo.toml benches/
RUN mkdir -p src macros/src loadtest/src \
    && echo 'fn main() {}' | tee src/main.rs loadtest/src/main.rs > /dev/null \
    && touch src/lib.rs macros/src/lib.rs \
    && for crate in crates/*; do mkdir -p "$crate/src" && touch "$crate/src/lib.rs"; done \
    && sed -n 's/^path = "\(.*\.rs\)"$/\1/p' benches/Cargo.toml | while read -r file; do echo 'fn main() {}' > "benches/$file"; done
# Toolsets that are built in on request; `""` leaves them out.
ARG FEATURES="git,sql"
RUN --mount=type=cache,target=/usr/local/cargo/registry deploy/program.sh dependencies

FROM dependencies AS compile
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    find src crates macros/src -name '*.rs' -exec touch {} + \
    && deploy/program.sh \
    && deploy/rootfs.sh "target/profiled/$(uname -m)-unknown-linux-gnu/image/longshore" /rootfs

FROM scratch AS build
COPY --from=compile /rootfs/ /

FROM scratch AS prebuilt
COPY target/image/ /

FROM ${FROM} AS rootfs

FROM debian:${RUNTIME_DEBIAN}-slim AS runtime
ARG UV=0.13.9
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git nodejs npm python3 python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m pip install --no-cache-dir --break-system-packages "uv==${UV}" \
    && groupadd --gid 65532 longshore \
    && useradd --uid 65532 --gid 65532 --create-home --home-dir /home/longshore longshore
COPY --from=rootfs /longshore /usr/local/bin/longshore
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Longshore" \
      org.opencontainers.image.description="An MCP server runtime, with Node, Python, uv and git" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
# Package runners keep what they fetch there; mount a volume to keep it over restarts.
ENV HOME=/home/longshore
WORKDIR /home/longshore
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/usr/local/bin/longshore", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/longshore"]
CMD ["run"]

# The last stage is what `docker build` makes unless told otherwise.
FROM scratch AS static
COPY --from=rootfs / /
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Longshore" \
      org.opencontainers.image.description="An MCP server runtime that speaks every revision of the protocol on one endpoint" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/longshore", "healthcheck"]
ENTRYPOINT ["/longshore"]
CMD ["run"]
