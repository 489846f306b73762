// Package evaluate holds the reports of package eval against those of evaluate.py, an independent
// implementation in numpy. It has tests only.
package evaluate
