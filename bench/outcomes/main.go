package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	folder := flag.String("recordings", "internal/recordings", "folder of NAME.passes.npy, NAME.labels.npy and NAME.json")
	only := flag.String("only", "ctg-,wine-,german-", "how the names of recordings begin, with commas")
	rare := flag.String("rare", "ctg-mcdropout,german-mcdropout", "recordings that are measured with rare critical inputs too")
	named := flag.String("sections", "", "the sections to measure, with commas; all without it")
	b := &bench{}
	flag.IntVar(&b.runs, "runs", 400, "runs of each figure; half as many of run lengths and delays")
	flag.Uint64Var(&b.seed, "seed", 1, "seed of halves and runs")
	flag.Float64Var(&b.rate, "rate", 0.02, "share of the retained inputs that is audited")
	flag.Float64Var(&b.between, "between", 5e6, "inputs between false alarms on the line, at least")
	flag.Parse()

	b.rare = strings.Split(*rare, ",")
	if err := b.load(*folder, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, s := range sections {
		if *named != "" && !slices.Contains(strings.Split(*named, ","), s.name) {
			continue
		}
		start := time.Now()
		fmt.Printf("## %s\n\n", s.title)
		t := &table{columns: append([]string{"recording, policy"}, s.columns...)}
		for _, st := range b.studies {
			if !s.allPolicies && st.score != defaultScore {
				continue
			}
			s.measure(b, st, t)
		}
		t.print()
		fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, time.Since(start).Round(time.Second))
	}
}

// A section measures one thing on each recording.
type section struct {
	name, title string
	columns     []string
	allPolicies bool // or those of the default score alone
	measure     func(b *bench, s *study, t *table)
}

var sections = []section{
	{"traffic", "Traffic", trafficColumns, true, measureTraffic},
	{"line", "Alarms on the line", lineColumns, false, measureLine},
	{"coverage", "Coverage at all times", coverageColumns, false, measureCoverage},
	{"delay", "Audits until an alarm", delayColumns, true, measureDelay},
	{"width", "Width of the interval after 2,000 audits", widthColumns, true, measureWidth},
	{"bias", "Bias of the estimate", biasColumns, false, measureBias},
	{"repeats", "Repeated ids and inputs", repeatColumns, false, measureRepeats},
	{"cap", "A cap on audits", capColumns, false, measureCap},
	{"noise", "Mislabelled inputs", noiseColumns, false, measureNoise},
	{"missing", "Missed inputs that are never reported", missingColumns, false, measureMissing},
	{"drift", "What drift sees", driftColumns, false, measureDrift},
}

// bench holds what is measured, and how.
type bench struct {
	runs          int
	seed          uint64
	rate, between float64
	rare          []string
	studies       []*study
}

func (b *bench) load(folder string, prefixes []string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), suffix)
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		studies, err := b.studiesOf(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		b.studies = append(b.studies, studies...)
	}
	if len(b.studies) == 0 {
		return fmt.Errorf("%s: no recording begins with one of %v", folder, prefixes)
	}
	return nil
}
