// Package deploytest tests what is deployed beside the binary with the programs that read it:
// dashboards and rules with Prometheus, manifests with the types of Kubernetes, the triage page
// with a browser. It is a module of its own, so that the daemon does not depend on their modules.
package deploytest
