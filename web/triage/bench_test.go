package triage

import (
	"fmt"
	"testing"
	"time"
)

// benched lists daemons by classes, models and what they have: 10 classes with 25 pairs; 33 labels
// with all 496 pairs of 32 classes, or with the safe x critical pairs of a thousand classes; and
// more labels than the page has rows.
var benched = []struct {
	name             string
	models, classes  int
	critical, inputs int
	labels           int
	more             string
}{
	{"K10", 1, 10, 5, 50, 32, ""},
	{"K10/10models", 10, 10, 5, 50, 32, ""},
	{"K32/496pairs", 1, 32, 16, 50, 32, "pairs: all"},
	{"K32/496pairs/10models", 10, 32, 16, 50, 32, "pairs: all"},
	{"K1000/240pairs", 1, 1000, 12, 10, 32, ""},
	{"K256/256labels", 1, 256, 128, 5, 256, ""},
	{"K1024/1024labels", 1, 1024, 128, 2, 1024, ""},
}

func benchDaemon(b *testing.B, at int) *daemon {
	bench := benched[at]
	var policies []string
	for i := range bench.models {
		policies = append(policies, manyClasses(fmt.Sprint("m", i), bench.classes, bench.critical, bench.more))
	}
	d := newDaemon(b, Options{}, bench.labels, policies...)
	d.page.sample()
	return d
}

// next runs one step in which every model has inputs.
func (d *daemon) next(b *testing.B, at int, seed uint64) {
	inputs := randomInputs(seed, benched[at].inputs, 5, benched[at].classes)
	for name := range d.models {
		d.feed(b, name, inputs)
	}
	d.clock.advance(stepTime)
}

// BenchmarkSample measures a sample with its scrape, as taken every 15 s, or every 2 s while
// somebody watches; and the scrape alone.
func BenchmarkSample(b *testing.B) {
	for n, bench := range benched {
		b.Run(bench.name, func(b *testing.B) {
			d := benchDaemon(b, n)
			d.next(b, n, 1)
			b.ReportAllocs()
			for b.Loop() {
				d.step(time.Second)
			}
		})
		b.Run(bench.name+"/scrape", func(b *testing.B) {
			d := benchDaemon(b, n)
			d.next(b, n, 1)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.page.options.Gatherer.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchSteps returns the steps of 15 minutes, or of one if go test has the flag -short, which takes
// seconds where all take a minute.
func benchSteps() int {
	if testing.Short() {
		return maxSteps / 15
	}
	return maxSteps
}

// BenchmarkState measures a state with 15 minutes of history: whole, as in the first event, and
// with the changes, as in further events.
func BenchmarkState(b *testing.B) {
	for n, bench := range benched {
		if bench.models > 1 {
			continue
		}
		d := benchDaemon(b, n)
		for step := range benchSteps() {
			d.next(b, n, uint64(step))
			d.page.sample()
		}
		for name, since := range map[string]uint64{"first": 0, "further": d.page.latest.number - 1} {
			b.Run(bench.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				size := 0
				for b.Loop() {
					clear(d.page.latest.encodings)
					state, _, _, err := d.page.encoded(encodingOf{model: "m0", since: since})
					if err != nil {
						b.Fatal(err)
					}
					size = len(state)
				}
				b.ReportMetric(float64(size), "B/state")
			})
		}
	}
}
