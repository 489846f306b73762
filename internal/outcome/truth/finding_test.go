package truth_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ckd-project/ckd/internal/outcome/outcometest"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/outcome/truth"
)

var day0 = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// terms has the classes benign (0) and malignant (1), which is critical.
func terms(t *testing.T) *truth.Terms {
	t.Helper()
	return truth.NewTerms(outcometest.Policy(t, "models:\n- {name: m, classes: [benign, malignant], critical: [malignant], passes: {fewest: 4}, audit: {rate: 0.02}}\n"))
}

// TestFind finds the truth of an input that the model called safe and an audit drew, or that was
// deferred.
func TestFind(t *testing.T) {
	const benign, malignant = 0, 1
	blind := func(source string, class, reported int) truth.Reading {
		at := day0.AddDate(0, 0, reported)
		return truth.Reading{Source: source, Truth: class, At: at, Reported: at}
	}
	sighted := func(r truth.Reading) truth.Reading { r.SawModel = true; return r }
	followUp := func(r truth.Reading) truth.Reading { r.Kind = truth.ByFollowUp; return r }
	type want struct {
		critical, safe           int
		want                     truth.Want
		missed, withdrawn, apart bool
	}
	for name, c := range map[string]struct {
		deferred bool
		readings []truth.Reading
		want     want
	}{
		"nothing":                      {want: want{critical: -1, safe: -1}},
		"one safe":                     {readings: []truth.Reading{blind("ann", benign, 1)}, want: want{critical: -1, safe: benign}},
		"one critical":                 {readings: []truth.Reading{blind("ann", malignant, 1)}, want: want{malignant, -1, truth.WantSecond, true, false, false}},
		"withdrawn after the answer":   {readings: []truth.Reading{blind("ann", malignant, 1), blind("ann", benign, 2)}, want: want{malignant, -1, truth.WantSecond, true, true, true}},
		"withdrawn, found earlier":     {readings: []truth.Reading{blind("ann", malignant, 2), {Source: "ann", Truth: benign, At: day0, Reported: day0.AddDate(0, 0, 3)}}, want: want{malignant, -1, truth.WantSecond, true, false, true}},
		"corrected before the answer":  {readings: []truth.Reading{blind("ann", malignant, 2), {Source: "ann", Truth: benign, At: day0.AddDate(0, 0, 3), Reported: day0.AddDate(0, 0, 2)}}, want: want{-1, benign, truth.WantSecond, true, true, false}},
		"critical after the answer":    {readings: []truth.Reading{blind("ann", benign, 1), blind("ann", malignant, 2)}, want: want{-1, benign, truth.WantSecond, true, false, true}},
		"withdrawn, then confirmed":    {readings: []truth.Reading{blind("ann", malignant, 1), blind("ann", benign, 2), blind("bob", malignant, 3)}, want: want{malignant, -1, truth.WantNone, true, true, true}},
		"withdrawn, then contradicted": {readings: []truth.Reading{blind("ann", malignant, 1), blind("ann", benign, 2), blind("bob", benign, 3)}, want: want{malignant, benign, truth.WantThird, true, true, true}},
		"sighted":                      {readings: []truth.Reading{sighted(blind("ann", benign, 1))}, want: want{critical: -1, safe: -1, apart: true}},
		"sighted, then said blind":     {readings: []truth.Reading{sighted(blind("ann", benign, 1)), blind("ann", benign, 2)}, want: want{critical: -1, safe: -1, apart: true}},
		"sighted critical":             {readings: []truth.Reading{sighted(blind("ann", malignant, 1))}, want: want{-1, -1, truth.WantSecond, true, false, true}},
		"follow-up towards critical":   {readings: []truth.Reading{blind("ann", benign, 1), followUp(blind("lab", malignant, 2))}, want: want{critical: malignant, safe: -1}},
		"follow-up against two critical": {readings: []truth.Reading{blind("ann", malignant, 1), blind("bob", malignant, 2), followUp(blind("lab", benign, 3))},
			want: want{malignant, benign, truth.WantNone, true, false, false}},
		"follow-up against one critical":        {readings: []truth.Reading{blind("ann", malignant, 1), followUp(blind("lab", benign, 3))}, want: want{malignant, benign, truth.WantSecond, true, false, false}},
		"sighted follow-up":                     {readings: []truth.Reading{blind("ann", malignant, 1), blind("bob", malignant, 2), sighted(followUp(blind("lab", benign, 3)))}, want: want{malignant, -1, truth.WantNone, true, false, true}},
		"follow-up by the reader, safe":         {readings: []truth.Reading{blind("ann", malignant, 1), followUp(blind("ann", benign, 3))}, want: want{malignant, -1, truth.WantSecond, true, false, false}},
		"follow-up by the reader, critical":     {readings: []truth.Reading{blind("ann", benign, 1), followUp(blind("ann", malignant, 3))}, want: want{critical: malignant, safe: -1}},
		"deferred, corrected":                   {deferred: true, readings: []truth.Reading{blind("ann", benign, 1), blind("ann", malignant, 2)}, want: want{malignant, -1, truth.WantSecond, true, false, false}},
		"deferred, withdrawn":                   {deferred: true, readings: []truth.Reading{blind("ann", malignant, 1), blind("ann", benign, 2)}, want: want{-1, benign, truth.WantSecond, true, true, false}},
		"deferred, sighted":                     {deferred: true, readings: []truth.Reading{sighted(blind("ann", benign, 1))}, want: want{critical: -1, safe: benign}},
		"deferred, follow-up against a sighted": {deferred: true, readings: []truth.Reading{sighted(blind("ann", malignant, 1)), followUp(blind("lab", benign, 2))}, want: want{-1, benign, truth.WantNone, true, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &truth.Decision{Receipt: receipt.Receipt{Stratum: receipt.CalledSafe, Review: true, Propensity: .02}}
			if c.deferred {
				d.Receipt.Stratum, d.Receipt.Propensity = receipt.Deferred, 1
			}
			for _, r := range c.readings {
				d.Add(r)
			}
			f := terms(t).Find(d, truth.EndOfTime)
			got := want{f.Critical, f.Safe, f.Want, f.Missed, f.Withdrawn, f.Apart != nil}
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if known := c.want.critical >= 0 || c.want.safe >= 0; f.Known != known {
				t.Errorf("known %v, want %v", f.Known, known)
			}
		})
	}
}

// TestFindIgnoresOrder adds readings in any order.
func TestFindIgnoresOrder(t *testing.T) {
	at := func(n int) time.Time { return day0.AddDate(0, 0, n) }
	readings := []truth.Reading{
		{Source: "ann", Truth: 1, At: at(1), Reported: at(1)}, {Source: "ann", Truth: 0, At: at(2), Reported: at(2)},
		{Source: "bob", Truth: 0, At: at(2), Reported: at(2)}, {Source: "lab", Kind: truth.ByBiopsy, Truth: 1, At: at(4), Reported: at(4)},
	}
	terms := terms(t)
	var first string
	for shift := range readings {
		d := &truth.Decision{Receipt: receipt.Receipt{Stratum: receipt.CalledSafe, Review: true, Propensity: .02}}
		for i := range readings {
			d.Add(readings[(i+shift)%len(readings)])
		}
		f := terms.Find(d, truth.EndOfTime)
		got := fmt.Sprint(f.Critical, f.Safe, f.Want, f.Kind, f.First.Source)
		if first == "" {
			first = got
		}
		if got != first {
			t.Errorf("shifted by %d: %s, want %s", shift, got, first)
		}
	}
}
