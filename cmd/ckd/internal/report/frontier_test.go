package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/calibrate"
	"github.com/ckd-project/ckd/cmd/ckd/internal/report/document"
	"github.com/ckd-project/ckd/eval"
)

// frontierByHand returns a frontier with two points of each method, and a policy's rule.
func frontierByHand() *calibrate.Frontier {
	critical := func(missed int) *calibrate.FrontierCritical {
		return &calibrate.FrontierCritical{FNR: eval.Figure(missed) / 100, Retained: 100, Missed: missed, FNRInterval: &[2]float64{0.01, 0.2}, Released: 0.03}
	}
	point := func(passes, disagreement float64, count, missed int) calibrate.FrontierPoint {
		return calibrate.FrontierPoint{MeanPasses: passes, Saving: 20 / passes, Disagreement: disagreement, Disagreements: count,
			DisagreementInterval: [2]float64{0.001, 0.0345}, Released: 0.0256, ReleasedInterval: &[2]float64{0.01, 0.05}, Critical: critical(missed)}
	}
	method := func(name string, passes float64, points ...calibrate.FrontierPoint) calibrate.FrontierMethod {
		return calibrate.FrontierMethod{Name: name, Points: points, At: []calibrate.FrontierAt{
			{Disagreement: 0.0025, MeanPasses: 2 * passes, Saving: 10 / passes, Reached: true, FewerPasses: 0.031},
			{Disagreement: 0.01, MeanPasses: passes, Saving: 20 / passes, Reached: name != calibrate.ScoreOnlyRule, FewerPasses: 0.0625},
		}}
	}
	return &calibrate.Frontier{
		Source: calibrate.FrontierSource{Software: "ckd test", Passes: eval.File{Name: "p.npy", SHA256: "aa11"}, Labels: &eval.File{Name: "l.npy", SHA256: "bb22"},
			Kind: "probabilities", Variance: "sample", Seed: 7, LearningOrders: 20, Orders: 8},
		Policy: calibrate.FrontierPolicy{Model: "fetal <i>health", Hash: "cc33", Gate: "never", Scope: "all"},
		Summary: calibrate.FrontierSummary{Inputs: 1001, Passes: 20, Classes: 3, LearnedOn: 500, DrawnOn: 501, Deferred: 99, HalvesDiffer: 0.085,
			HalvesDifferInterval: [2]float64{0.069, 0.103}},
		Full: calibrate.FrontierPoint{MeanPasses: 20, Saving: 1, Critical: critical(10)},
		Methods: []calibrate.FrontierMethod{
			method(calibrate.LearnedRule, 5, point(8, 0.004, 2, 10), point(4, 0.02, 9, 11)),
			method(calibrate.ScoreOnlyRule, 6.25, point(10, 0.005, 3, 10), point(5, 0.009, 4, 11)),
			method(calibrate.FewerPasses, 18, point(10, 0.03, 14, 12), point(2, 0.2, 100, 20)),
		},
		Rule:  &calibrate.FrontierRule{FrontierPoint: point(6.4, 0.0085, 4, 11), Certified: 0.0125, Confidence: 0.9, Flattered: true},
		Notes: []string{"a note"},
	}
}

func TestFrontierPage(t *testing.T) {
	t.Parallel()
	d := writePage(t, FrontierDocument(frontierByHand()))
	d.expect(t,
		"Model fetal <i>health: 1,001 inputs, 20 passes each, 3 classes",
		"the learned rule 5.0 (4.00x fewer)", "the score alone 6.2 (at least 3.20x fewer)", "fewer passes for every input 18.0 (1.11x fewer)",
		"uses 6.4 (3.12x fewer)", "0.85% otherwise", "at most 1.25% with confidence 0.9", "flatters it",
		"8.5% of the inputs", "6.9% to 10.3%", "a note", "500 inputs", "501 others", "defer 99")
	d.expectRows(t, "Passes saved, at a share of inputs decided otherwise",
		"method|0.25%|1%",
		"the learned rule|2.00x|4.00x",
		"otherwise by as many passes for every input|3.1%|6.25%",
		"the score alone|1.60x|at least 3.20x",
		"fewer passes for every input|0.56x|1.11x")
	d.expectRows(t, "All 20 passes, and the policy's rule",
		"mean passes|saved|decided otherwise|of|95% interval|retained instead, of deferred|95% interval|critical FNR|missed of retained|95% interval",
		"20.00|1.00x|0.00%|0 of 501|0.00% to 0.00%|0.00%|n/a|10.0%|10 of 100|1.0% to 20.0%",
		"6.40|3.12x|0.85%|4 of 501|0.10% to 3.45%|2.56%|1.00% to 5.00%|11.0%|11 of 100|1.0% to 20.0%")
	if rows := d.rows(t, "Fewer passes for every input, from cautious to bold"); len(rows) != 3 {
		t.Errorf("%d rows, expected a head and two points", len(rows))
	}

	bare := frontierByHand()
	bare.Rule, bare.Source.Labels = nil, nil
	bare.Full.Critical = nil
	for i := range bare.Methods {
		for j := range bare.Methods[i].Points {
			bare.Methods[i].Points[j].Critical = nil
		}
	}
	d = writePage(t, FrontierDocument(bare))
	for _, word := range []string{"critical FNR", "policy's rule", "SHA-256 of the labels"} {
		if strings.Contains(d.text, word) {
			t.Errorf("without labels and rule the page has %q", word)
		}
	}
}

// TestFrontierSVG expects the picture alone to be a complete file with a legend.
func TestFrontierSVG(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := document.SVG(&out, FrontierFigure(frontierByHand())); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"the learned rule<", "the score alone<", "fewer passes for every input<", "all 20 passes<",
		"certified: at most 1.25%", "critical FNR<", "decided otherwise<", "prefers-color-scheme: dark", `fill:var(--bg)`} {
		if !strings.Contains(text, word) {
			t.Errorf("the picture has no %q", word)
		}
	}
	for _, variable := range regexp.MustCompile(`var\((--[a-z0-9]+)\)`).FindAllStringSubmatch(text, -1) {
		if n := strings.Count(text, variable[1]+":"); n != 2 {
			t.Fatalf("%s has %d values, expected one for light and one for dark", variable[1], n)
		}
	}
	if strings.Contains(strings.Replace(text, "http://www.w3.org/2000/svg", "", 1), "http") {
		t.Error("the picture refers to something elsewhere")
	}
}

// TestMixed expects curves in proportion to passes between two points: half of the inputs on 20
// passes and half on 4 make 12 on average.
func TestMixed(t *testing.T) {
	t.Parallel()
	x, y := mixed([]calibrate.FrontierPoint{{Saving: 1}, {Saving: 5, Disagreement: 0.02}}, func(p *calibrate.FrontierPoint) float64 { return p.Disagreement })
	half := slices.Index(y, 0.01)
	if half < 0 || math.Abs(x[half]-20./12) > 1e-12 {
		t.Errorf("half way (%d) of %v, expected %v saved", half, x, 20./12)
	}
	if n := len(x) - 1; x[n] != 5 || y[n] != 0.02 || x[0] != 1 || y[0] != 0 {
		t.Errorf("from %v, %v to %v, %v", x[0], y[0], x[n], y[n])
	}
}
