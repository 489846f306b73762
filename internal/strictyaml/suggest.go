package strictyaml

import "strings"

// Suggest returns `, did you mean "x"?` if one of the candidates resembles the text, and an empty
// text otherwise. It does not search for long texts or in long lists, because the cost grows with
// the square of the length and with the number of candidates.
func Suggest(text string, candidates []string) string {
	const longest, most = 32, 64
	if len(text) > longest || len(candidates) > most {
		return ""
	}
	text = plain(text)
	best, nearest := "", len(text)/3+1
	for _, candidate := range candidates {
		c := plain(candidate)
		if len(c) > longest || len(c)-len(text) >= nearest || len(text)-len(c) >= nearest {
			continue
		}
		if d := distance(text, c); d < nearest {
			best, nearest = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + Quote(best) + "?"
}

// plain removes spelling differences that are common: case, underscores, dashes and spaces.
func plain(s string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
}

// distance returns the number of bytes to insert, delete, replace or swap with their neighbour to
// get from a to b.
func distance(a, b string) int {
	var before, last []int // two rows and one row ago
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
