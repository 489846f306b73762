package main

import (
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ckd-project/ckd/internal/record"
)

// TestOrderOfTheFile shuffles a recording, sorts it by class, and expects the same reports.
// One recording of hard votes read "misses 21 of 471", and "misses 0" for somebody whose files came
// from one folder a class.
func TestOrderOfTheFile(t *testing.T) {
	t.Parallel()
	const inputs, passes, classes = 300, 5, 3
	random := rand.New(rand.NewPCG(1, 1))
	labels, groups, rows := make([]int64, inputs), make([]int64, inputs), make([][][]float64, inputs)
	for i := range rows {
		labels[i], groups[i] = int64(max(0, random.IntN(5)-2)), int64(i/3)
		base := [classes]float64{}
		base[labels[i]] = 1.5
		for k := range base {
			base[k] += random.NormFloat64()
		}
		rows[i] = make([][]float64, passes)
		for s := range rows[i] {
			row, sum := make([]float64, classes), 0.0
			for k := range row {
				row[k] = math.Exp(base[k] + 0.8*random.NormFloat64())
				sum += row[k]
			}
			for k := range row {
				row[k] /= sum
			}
			rows[i][s] = row
		}
	}
	votes := func(row []float64) []float64 {
		vote := make([]float64, classes)
		for k := range row {
			if row[k] == slices.Max(row) {
				vote[k] = 1
			}
		}
		return vote
	}
	asRecorded := make([]int, inputs)
	for i := range asRecorded {
		asRecorded[i] = i
	}
	byClass := slices.Clone(asRecorded)
	slices.SortStableFunc(byClass, func(a, b int) int { return int(labels[b] - labels[a]) })
	orders := map[string][]int{"by class": byClass, "shuffled": random.Perm(inputs)}
	ofFile := regexp.MustCompile(`(?i)((sha-?256( of the\s+\w+)?|of the\s+labels)\W+)[0-9a-f]{12,64}(\\")?|"input":\d+|` + regexp.QuoteMeta(os.TempDir()) + `/[^ "]*/`)
	for name, change := range map[string]func(row []float64) []float64{
		"votes": votes, "untied": func(row []float64) []float64 { return row },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := func(order []int) map[string]string {
				values := make([]float64, 0, passes*inputs*classes)
				for s := range passes {
					for _, i := range order {
						values = append(values, change(rows[i][s])...)
					}
				}
				ordered := func(of []int64) (to []int64) {
					for _, i := range order {
						to = append(to, of[i])
					}
					return to
				}
				args := []string{"--critical", "1,2",
					"--passes", writeArray(t, "p.npy", &record.Array{Shape: []int{passes, inputs, classes}, Float64: values}),
					"--labels", writeArray(t, "y.npy", &record.Array{Shape: []int{inputs}, Int64: ordered(labels)}),
				}
				grouped := []string{"--groups", writeArray(t, "g.npy", &record.Array{Shape: []int{inputs}, Int64: ordered(groups)})}
				run := func(command string, more ...string) string {
					out, _, _ := runCommand(t, slices.Concat([]string{command}, args, more)...)
					return ofFile.ReplaceAllString(out, "")
				}
				calibrated := func(more ...string) string {
					return run("calibrate", append(more, "--format", "json")...)
				}
				return map[string]string{
					"evaluate":           run("evaluate", "--bootstrap", "20", "--full"),
					"evaluate as JSON":   run("evaluate", "--bootstrap", "20", "--format", "json", "--coverage", "0.61"),
					"evaluate by group":  run("evaluate", append(grouped, "--bootstrap", "20", "--format", "json")...),
					"calibrate":          calibrated("--coverage", "0.8"),
					"calibrate by group": calibrated(append(grouped, "--max-critical-miss", "0.3")...),
				}
			}
			want := report(asRecorded)
			for name, order := range orders {
				if diff := cmp.Diff(want, report(order)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}
