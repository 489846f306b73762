package engine

// Check gives refused, in the order of the inputs, every input that Outcome would
// refuse, with its *decomp.RowError, and reports whether there is none.
func (b *Batch) Check(refused func(i int, err error)) bool { return b.batch.Check(refused) }
