// Package strictyaml reads a YAML document strictly and reports every fault with its place.
//
// A caller parses the document and then walks it with typed getters. A getter that does not find
// what it was asked for reports a fault, with line, column and path, and returns false. The caller
// goes on, so that one run finds every fault. Unknown and repeated keys are faults, and so are
// anchors, aliases, merge keys, tags and a second document: a reader can tell what a file means by
// reading it from top to bottom.
//
// The package takes text letter by letter as written: the plain scalars no, 1e3 and 2026-11-21 are
// the texts "no", "1e3" and "2026-11-21". Numbers must be plain decimals. Nothing is converted
// implicitly.
package strictyaml
