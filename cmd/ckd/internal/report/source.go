package report

import (
	"fmt"
	"strconv"

	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
	"github.com/ckd-project/ckd/policy"
)

// setting is something that a report was computed from, as a row of text.
type setting [2]string

// fileSettings returns the settings for a file: its name and its hash.
func fileSettings(what string, f eval.File) []setting {
	return []setting{{what, f.Name}, {"SHA-256 of the " + what, f.SHA256}}
}

// computed returns the section that says how a command computed a report.
func computed(command string, settings ...setting) document.Section {
	t := &document.Table{Caption: "Files and settings", Head: []string{"what", "value"}, TextColumns: 2}
	for _, s := range settings {
		t.Add(s[0], s[1])
	}
	return document.NewSection("computed", "How this was computed",
		"By "+command+", from the files named here; the same files, settings and version give the same numbers. All "+
			"information quantities are in nats.", t)
}

// sourceSection shows how the report was computed.
func sourceSection(e *evaluation) document.Section {
	s, summary := e.report.Source, e.report.Summary
	settings := []setting{{"software", s.Software}}
	settings = append(settings, fileSettings("passes", s.Passes)...)
	settings = append(settings, fileSettings("labels", s.Labels)...)
	if s.Groups > 0 && s.GroupsFile != nil {
		settings = append(settings, fileSettings("groups", *s.GroupsFile)...)
		settings = append(settings, setting{"groups of inputs", document.Count(s.Groups)})
	}
	if s.ReviewsPer1000 > 0 {
		settings = append(settings, setting{"budget: reviews per 1,000 inputs in all", document.Plain(s.ReviewsPer1000)})
	}
	return computed("ckd evaluate", append(settings,
		setting{"shape", fmt.Sprintf("%d passes, %d inputs, %d classes", summary.Passes, summary.Inputs, summary.Classes)},
		setting{"kind of rows", s.Kind},
		setting{"variance", s.Variance},
		setting{"coverage", document.Plain(s.Coverage)},
		setting{"bootstrap resamples", document.Count(s.Bootstrap)},
		setting{"seed", strconv.FormatUint(s.Seed, 10)},
		setting{"reliability threshold (skewness)", document.Plain(s.Reliability)},
		setting{"inputs whose passes hardly differ",
			fmt.Sprintf("%s, of which one-hot %s", document.Count(summary.Degenerate), document.Count(summary.Saturated))})...)
}

// words explains the terms that the report uses.
func words(e *evaluation) []document.Word {
	words := []document.Word{
		{"pass", "One of several answers of the model to the same input. Where they differ, the model is unsure."},
		{"retain, defer", "A retained input is decided by the model alone, a deferred one goes to a person."},
		{"coverage", "The share of inputs retained."},
		{"score, ranking", "A number for each input: the higher, the sooner it is deferred."},
		{"contribution C_k", "How much of the model's ignorance about an input concerns class k, in nats."},
		{"skewness", "How lopsided the passes are for a class. Above the threshold its contribution is not taken at face value."},
	}
	if e.classes.anyCritical {
		words = append(words,
			document.Word{"critical", "A class that must not be taken for a harmless one. An input is critical when its true class is."},
			document.Word{"missed", "A critical input that the model calls by a class that is not critical."},
			document.Word{"critical FNR", "Of the critical inputs retained, the share that is missed (false negative rate)."},
			document.Word{"scope", "Which inputs may be deferred: all, or only those that the model calls safe."},
			document.Word{"any-critical", "The paper's rule: a gate that ranks by c_crit_max where the contributions of all critical classes can be trusted, and by cbec " +
				"elsewhere."},
		)
	}
	for _, row := range e.report.Policies {
		if meaning := policy.Score(row.Name).Words(); meaning != "" && row.Scope == e.report.Policies[0].Scope {
			words = append(words, document.Word{row.Name, sentence(capital(meaning))})
		}
	}
	return words
}
