package report

import (
	"fmt"
	"strconv"
)

// sourceSection is how the page was computed.
func (b *builder) sourceSection() section {
	s := b.r.Source
	t := &table{Caption: "Files and settings", Head: []string{"what", "value"}, Text: 2}
	add := func(name, value string) { t.Rows = append(t.Rows, []string{name, value}) }
	add("software", s.Software)
	add("passes", s.Passes.Name)
	add("SHA-256 of the passes", s.Passes.SHA256)
	add("labels", s.Labels.Name)
	add("SHA-256 of the labels", s.Labels.SHA256)
	add("shape", fmt.Sprintf("%d passes, %d inputs, %d classes", b.r.Summary.Passes, b.r.Summary.Inputs, b.r.Summary.Classes))
	add("kind of rows", s.Kind)
	add("variance", s.Variance)
	add("coverage", trim(s.Coverage))
	add("bootstrap resamples", strconv.Itoa(s.Bootstrap))
	add("seed", strconv.FormatUint(s.Seed, 10))
	add("reliability threshold (skewness)", trim(s.Reliability))
	add("inputs with identical passes",
		fmt.Sprintf("%s, of which one-hot %s", count(b.r.Summary.Degenerate), count(b.r.Summary.Saturated)))
	return section{
		ID:    "computed",
		Title: "How this was computed",
		Intro: "By ckd evaluate, from the files named here; the same files, settings and version give the same numbers. All " +
			"information quantities are in nats.",
		Parts: []part{{Table: t}},
	}
}

// words are the terms that the page uses.
func (b *builder) words() []word {
	words := []word{
		{"pass", "One of several answers of the model to the same input. Where they differ, the model is unsure."},
		{"retain, defer", "A retained input is decided by the model alone, a deferred one goes to a person."},
		{"coverage", "The share of inputs retained."},
		{"score, ranking", "A number for each input: the higher, the sooner it is deferred."},
		{"contribution C_k", "How much of the model's ignorance about an input concerns class k, in nats."},
		{"skewness", "How lopsided the passes are for a class. Above the threshold its contribution is not taken at face value."},
	}
	if b.anyCritical() {
		words = append(words,
			word{"critical", "A class that must not be taken for a harmless one. An input is critical when its true class is."},
			word{"missed", "A critical input that the model calls by a class that is not critical."},
			word{"critical FNR", "Of the critical inputs retained, the share that is missed (false negative rate)."},
			word{"scope", "Which inputs may be deferred: all, or only those that the model calls safe."},
			word{"any-critical, deciding-class", "Gates that rank by c_crit_max where contributions can be trusted, and by cbec elsewhere: " +
				"they ask every critical class, or only the one that sets c_crit_max."},
		)
	}
	for _, row := range b.r.Policies {
		if meaning, ok := scoreWords[row.Name]; ok && row.Scope == b.r.Policies[0].Scope {
			words = append(words, word{row.Name, meaning})
		}
	}
	return words
}

var scoreWords = map[string]string{
	"entropy":     "Predictive entropy: unsureness of any kind, in the mean of the passes.",
	"mi":          "Mutual information: how much the passes disagree, over all classes at once.",
	"maxprob":     "One less the largest mean probability.",
	"eu_var":      "Sum of the variances of all classes.",
	"var_crit":    "Largest variance of a critical class.",
	"eu_var_crit": "Sum of the variances of the critical classes.",
	"ova_mi":      "Sum of the mutual information of each critical class against the rest.",
	"c_crit_sum":  "Sum of the contributions of the critical classes.",
	"c_crit_max":  "Largest contribution of a critical class.",
	"cbec":        "Confusion across the boundary of safe and critical classes (cross-boundary epistemic confusion).",
}
