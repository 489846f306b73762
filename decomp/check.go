package decomp

// Check checks the rows of all inputs of the tensor. It calls refused with every input that Result
// would refuse, in order, and its *RowError. It reports whether all are good; Result then does not
// check the rows again, unless some are to be clamped.
func (b *Batch) Check(refused func(i int, err error)) (good bool) {
	var clamps bool
	if b.single() {
		good, clamps = check(b, b.job.Float32, refused)
	} else {
		good, clamps = check(b, b.job.Float64, refused)
	}
	b.job.checked = b.job.checked || good && !clamps
	b.first, b.end = 0, 0 // the faults of the current panel were overwritten
	return good
}

func check[T float](b *Batch, data []T, refused func(i int, err error)) (good, clamps bool) {
	good = true
	k, s := b.plan.classes, b.job.Passes
	for first, end := 0, 0; first < b.job.Inputs; first = end {
		var p panel[T]
		if b.job.Layout == NSK {
			end = first + 1
			p = panel[T]{data[first*s*k:], s, k, k}
		} else {
			end = min(first+len(b.faults), b.job.Inputs)
			p = panel[T]{data[first*k:], s, (end - first) * k, b.job.stride}
		}
		faults := b.faults[:end-first]
		clear(faults)
		fine, clamp := checkComplete(b.plan, b.job.SumRounding, faults, &p)
		good, clamps = good && fine, clamps || clamp
		for i, err := range faults {
			if err != nil {
				refused(first+i, err)
			}
		}
	}
	return good, clamps
}
