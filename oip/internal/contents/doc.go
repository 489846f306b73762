// Package contents converts the elements of the Open Inference Protocol's tensors between their
// two forms: typed contents, and little-endian bytes.
package contents
