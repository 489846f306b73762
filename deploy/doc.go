// Package deploy holds what is deployed beside the binary: the Helm chart, dashboards, rules, the
// example policy. It has no code. Its test keeps the files that the chart ships equal to the
// originals in the folders beside it.
package deploy

// The chart has copies because many tools drop or refuse symbolic links that lead out of a chart.
//go:generate go test -run ^TestChartFiles$ -update .
