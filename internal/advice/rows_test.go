package advice

import (
	"math"
	"strings"
	"testing"
)

// TestAdvice holds kinds of rows that are no probabilities against what is to be done with them. Of
// most of them the softmax is wrong without a word: only real logits are told to be declared.
func TestAdvice(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		rows [][]float64
		want string
		row  bool // one row is enough
	}{
		"sigmoids":          {[][]float64{{.9, .8, .1}, {.2, .1, .05}}, "rows [1-p, p]", true},
		"rounded":           {[][]float64{{.51234567, .49234567}, {.61234567, .39234567}}, "rounded? send float32, or set sum_tolerance (--sum-tolerance) to 0.01", true},
		"log-probabilities": {[][]float64{{-.10536052, -2.3025851}, {-.6931472, -.6931472}}, "log-probabilities?", true},
		"negative, sum 1":   {[][]float64{{1.2, -.2}, {.7, .3}, {1.3, -.3}}, "no softmax gives", true},
		"logits":            {[][]float64{{2.5, -1, 0}, {.2, .3, .4}, {-1, -2, 3}}, "--kind logits", false},
		"percentages":       {[][]float64{{99.5, .4}, {20, 80}}, "divide by 100", true},
		"votes":             {[][]float64{{7, 3}, {2, 8}}, "divide each row by its sum", true},
		"bytes":             {[][]float64{{250.5, 4.5}, {20.25, 234.75}}, "sum to about 255? divide", false},
		"positive":          {[][]float64{{2.5, .5}, {20.25, 3}}, "--kind logits", false},
		"NaN":               {[][]float64{{.5, nan}, {.5, nan}, {.5, .5}}, "overflow", true},
	} {
		var r Rows
		for _, row := range c.rows {
			r.Add(row)
		}
		if got := r.Advice(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := Row(c.rows[0]); strings.Contains(got, c.want) != c.row || got != "" && !c.row {
			t.Errorf("%s, one row: %q", name, got)
		}
	}
}
