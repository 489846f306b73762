// Package report turns what ckd evaluate and ckd calibrate found into a document for the people who
// own the risk.
//
// The document is data: sections with tables and figures, which package document renders as plain
// text or as an HTML page. Every figure has a title that says what it is, and a sentence, computed
// from the report, that says what it shows.
package report
