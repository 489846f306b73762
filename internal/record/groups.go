package record

// ReadGroups reads the group of each input, such as the number of its patient, from a file that
// ReadFile can read: one axis of integers. Which numbers they are does not matter.
func ReadGroups(path string) ([]int, error) {
	a, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	switch {
	case len(a.Shape) != 1:
		return nil, contentError(path, "shape %s has %d axes: expected one, with the number of a group for each input", tuple(a.Shape),
			len(a.Shape))
	case a.Int64 == nil && a.Shape[0] > 0:
		return nil, contentError(path, "the groups are no integers: expected the number of a group for each input, the same for inputs of "+
			"one patient or session")
	}
	groups := make([]int, len(a.Int64))
	for i, g := range a.Int64 {
		groups[i] = int(g)
	}
	return groups, nil
}
