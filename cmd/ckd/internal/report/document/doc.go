// Package document renders a report that is given as data, as plain text or as one HTML page.
//
// A [Document] is a list of sections; a section holds tables and figures. Cells of tables are typed
// values, and plots are lists of lines, bands, boxes and points. [Text] and [HTML] decide how these
// look. A table or a figure is therefore added once, where the document is built.
//
// The HTML file is complete in itself: its figures are inline SVG, its style is inline CSS, it has
// no script and loads nothing. It follows the reader's light or dark theme and can be printed. The
// same document gives the same bytes.
//
// Plots are drawn by some 570 lines of our own (plot.go, svg.go), in the reader's font and colours.
// gonum/plot, which drew them before, embeds fonts and links PDF, LaTeX and raster output into the binary
// that serves: 37.2 MB in place of 29.8, and 8 modules more. go-chart and go-analyze/charts embed fonts and
// fix their colours; svgo has no plots. A figure that is hard to lay out, such as labels that avoid each
// other or maps, would be a reason to look again.
package document
