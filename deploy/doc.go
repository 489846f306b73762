// Package deploy holds what is deployed beside the binary: the Helm chart, manifests rendered from it,
// dashboards, rules and the example policy. It has no code. Its tests keep the files that the chart
// ships equal to their originals.
package deploy

// The chart ships copies because many tools drop or refuse symbolic links that lead out of a chart.
//go:generate go test -run ^TestChartFiles$ -update .

// The manifests need helm, which is a tool of the module of tests.
//go:generate go -C test test -run ^TestManifest -update .
