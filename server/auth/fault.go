package auth

import "github.com/ckd-project/ckd/internal/strictyaml"

// Fault describes one thing wrong with an access file: File, Line, Col, Entry, Field and
// Reason. Entry names the identity, as in identity "x", if its name is known. Error returns
// file:line:col: entry: field: reason, without the parts that are empty.
type Fault = strictyaml.Fault

// Faults lists everything wrong with an access file, by position. Error returns them, one
// on each line.
type Faults = strictyaml.Faults
