package policy

import "github.com/ckd-project/ckd/internal/strictyaml"

// Fault describes one thing wrong with a policy file: File, Line, Col, Entry, Field and
// Reason. Entry names the model, as in model "x", if its name is known. Error returns
// file:line:col: entry: field: reason, without the parts that are empty.
type Fault = strictyaml.Fault

// Faults lists everything wrong with a set of policy files: the files in the order given,
// the faults of each file by position. Error returns them, one on each line.
type Faults = strictyaml.Faults
