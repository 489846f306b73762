// Package strictyaml reads a YAML document strictly, and says of every fault
// where it stands.
//
// A caller parses the document, then walks it with typed getters. A getter
// that does not find what it was asked for reports a fault, with line, column
// and path, and returns false; the caller goes on, so that one run finds every
// fault. Unknown and repeated keys are faults, and so are anchors, aliases,
// merge keys, tags and a second document: what a file means can be read off it
// from top to bottom.
//
// Text is taken letter by letter as written: the plain scalars no, 1e3 and
// 2026-11-21 are the texts "no", "1e3" and "2026-11-21". Numbers must be plain
// decimals. Nothing is converted behind the author's back.
package strictyaml
