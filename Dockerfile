# docker build --build-arg VERSION=1.2.3 --build-arg REVISION=$(git rev-parse HEAD) -t ckd .
#
# Without the Go image, the target "prebuilt" takes a binary that was built elsewhere, as ./ckd in the build context. It
# must be static: a plain `go build` links against the C library, which the image does not have.
#
#   CGO_ENABLED=0 go build -o ckd ./cmd/ckd
#   docker build --target prebuilt --build-arg VERSION=1.2.3 --build-arg REVISION=$(git rev-parse HEAD) -t ckd .
#
# VERSION and REVISION become labels of the image. With the Go image `ckd version` prints them too.
# The binary is static, so any base image will do: --build-arg BASE_IMAGE=gcr.io/distroless/static:nonroot
# podman and buildah keep the health check only with --format docker. Without runc, buildah needs --isolation chroot.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=scratch

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG REVISION=unknown
RUN CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X github.com/ckd-project/ckd/internal/buildinfo.Version=${VERSION} -X github.com/ckd-project/ckd/internal/buildinfo.Revision=${REVISION}" \
    -o /ckd ./cmd/ckd

# Every image has this, wherever its binary was built. Port 8590 serves gRPC, 8591 HTTP if enabled, 9590 health, metrics
# and administration.
FROM ${BASE_IMAGE} AS runtime
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ckd" \
      org.opencontainers.image.description="The uncertainty daemon that sits beside a model server" \
      org.opencontainers.image.source="https://github.com/ckd-project/ckd" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
USER 65532:65532
EXPOSE 8590 8591 9590
HEALTHCHECK CMD ["/ckd", "healthcheck"]
ENTRYPOINT ["/ckd"]
CMD ["serve"]

# Runs the binary on an empty image, where a dynamic binary cannot start. Without a shell to print a message, the path of
# the binary is the message: builders print the command that failed.
FROM scratch AS static
COPY ["ckd", "/ckd must be a static binary, which a plain go build does not make: use CGO_ENABLED=0 go build"]
RUN ["/ckd must be a static binary, which a plain go build does not make: use CGO_ENABLED=0 go build", "version"]

FROM runtime AS prebuilt
COPY --from=static ["/ckd must be a static binary, which a plain go build does not make: use CGO_ENABLED=0 go build", "/ckd"]

# For .ci/release, which has checked its binaries. Nothing runs, so that any processor's image can be built anywhere.
FROM runtime AS release
ARG TARGETARCH
COPY ckd-linux-${TARGETARCH} /ckd

FROM runtime
COPY --from=build /ckd /ckd
