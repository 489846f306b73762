// Package deploytest holds what is deployed beside the binary against those that
// read it: dashboards and rules against Prometheus, manifests against the types of
// Kubernetes, the triage page against a browser. It is a module of its own, so that
// their modules are not the daemon's.
package deploytest
