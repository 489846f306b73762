// Package document renders a report that is given as data, as plain text or as one HTML page.
//
// A [Document] is a list of sections; a section holds tables and figures. Cells of tables are typed
// values, and plots are lists of lines, bands, boxes and points. [Text] and [HTML] decide how these
// look. A table or a figure is therefore added once, where the document is built.
//
// The HTML file is complete in itself: its figures are inline SVG, its style is inline CSS, it has
// no script and loads nothing. It follows the reader's light or dark theme and can be printed. The
// same document gives the same bytes.
package document
