package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/internal/outcome/evidence"
)

func main() {
	folder := flag.String("recordings", "internal/recordings", "folder of NAME.passes.npy, NAME.labels.npy and NAME.json")
	only := flag.String("only", "ctg-,wine-,german-", "how the names of recordings begin, with commas")
	b := &bench{}
	flag.IntVar(&b.runs, "runs", 400, "runs of each figure; half as many of run lengths and delays")
	flag.Uint64Var(&b.seed, "seed", 1, "seed of halves and runs")
	flag.Float64Var(&b.rate, "rate", 0.02, "share of the retained inputs that is audited")
	flag.Float64Var(&b.between, "between", 5e6, "inputs between false alarms on the line, at least")
	flag.Parse()

	if err := b.load(*folder, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, s := range []struct {
		title   string
		columns []string
		measure func(b *bench, s *study, t *table)
	}{
		{"Alarms on the line", lineColumns, measureLine},
		{"Coverage at all times", coverageColumns, measureCoverage},
		{"Audits until an alarm", delayColumns, measureDelay},
	} {
		fmt.Printf("## %s\n\n", s.title)
		t := &table{columns: append([]string{"recording"}, s.columns...)}
		for _, st := range b.studies {
			s.measure(b, st, t)
		}
		t.print()
	}
}

// bench holds what is measured, and how.
type bench struct {
	runs          int
	seed          uint64
	rate, between float64
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
		s, err := b.studyOf(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if s.traffic.risk(evidence.FNR) > 0 {
			b.studies = append(b.studies, s)
		}
	}
	if len(b.studies) == 0 {
		return fmt.Errorf("%s: no recording begins with one of %v", folder, prefixes)
	}
	return nil
}
