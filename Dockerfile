# docker build --build-arg VERSION=1.2.3 --build-arg REVISION=$(git rev-parse HEAD) -t ckd .
#
# Any base image will do, since the binary is static: --build-arg BASE_IMAGE=gcr.io/distroless/static:nonroot
# A binary built elsewhere, as ./ckd in the build context, needs no Go image: --target prebuilt
# buildah keeps the health check only with --format docker.
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

# What every image has, whoever built its binary: 8590 is gRPC, 8591 HTTP where it is on, 9590 is health, metrics and the rest of the admin side.
FROM ${BASE_IMAGE} AS runtime
USER 65532:65532
EXPOSE 8590 8591 9590
HEALTHCHECK CMD ["/ckd", "healthcheck"]
ENTRYPOINT ["/ckd"]
CMD ["serve"]

FROM runtime AS prebuilt
COPY ckd /ckd

FROM runtime
COPY --from=build /ckd /ckd
