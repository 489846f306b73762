package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/ckd-project/ckd/bench/internal/labelled"
	"github.com/ckd-project/ckd/internal/outcome/evidence"
)

const (
	runs = 400 // of each figure; half as many of run lengths and delays
	seed = 1   // of halves and runs
	// auditRate is the share of the retained inputs that is audited.
	auditRate = 0.02
	// between is how many inputs lie between false alarms on the line, at least.
	between = 5e6
)

func main() {
	var studies []*study
	for _, data := range []string{"ctg", "german", "wine"} {
		err := labelled.Each(data, func(r *labelled.Recording) error {
			s, err := newStudy(r)
			if err == nil && s.traffic.risk(evidence.FNR) > 0 {
				studies = append(studies, s)
			}
			return err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	for _, t := range []struct {
		title, columns string
		row            func(s *study) []string
	}{
		{"Alarms on the line", lineColumns, lineRow},
		{"Coverage at all times", coverageColumns, coverageRow},
		{"Audits until an alarm", delayColumns, delayRow},
	} {
		fmt.Printf("## %s\n\n| recording | %s |\n%s\n", t.title, t.columns, strings.Repeat("|---", 2+strings.Count(t.columns, "|"))+"|")
		for _, s := range studies {
			fmt.Printf("| %s | %s |\n", s.Name, strings.Join(t.row(s), " | "))
		}
		fmt.Println()
	}
}
