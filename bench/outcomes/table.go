package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A table is printed as Markdown.
type table struct {
	columns []string
	rows    [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print() {
	line := func(cells []string) { fmt.Printf("| %s |\n", strings.Join(cells, " | ")) }
	line(t.columns)
	fmt.Println(strings.Repeat("|---", len(t.columns)) + "|")
	for _, row := range t.rows {
		line(row)
	}
	fmt.Println()
}

// none stands where nothing was measured.
const none = "n/a"

// number prints a figure with three digits that matter, and thousands apart.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return none
	case math.Abs(v) < 100:
		return fmt.Sprintf("%.3g", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	if math.Abs(v) >= 1000 {
		unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
		digits = fmt.Sprintf("%.0f", math.Round(v/unit)*unit)
	}
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// share prints a share of n runs in percent.
func share(count, n int) string {
	if n == 0 {
		return none
	}
	return fmt.Sprintf("%.3g%%", 100*float64(count)/float64(n))
}

// mean returns the mean, and its standard error.
func mean(values []float64) (mean, standardError float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	for _, v := range values {
		standardError += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(standardError / (n - 1) / n)
}

// quantile returns the value that so many values do not exceed.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(math.Ceil(q*float64(len(sorted))))-1+btoi(q == 0), len(sorted)-1)]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
