// Package report writes an evaluation as one HTML file for the people who own
// the risk.
//
// The file is complete in itself: its figures are inline SVG, its style is
// inline CSS, it has no script and loads nothing. It follows the reader's light
// or dark theme and can be printed. Every figure has a title that says what it
// is and a sentence, computed from the report, that says what it shows. The
// same report gives the same bytes.
package report
