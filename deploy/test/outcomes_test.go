package deploytest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/record"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// receiptKeys writes a key file of receipts and returns its path.
func receiptKeys(t *testing.T) string {
	t.Helper()
	return putFile(t, filepath.Join(t.TempDir(), "keys"), strings.Repeat("5a", 32)+"\n")
}

// addAudits lets the policy in a file have some of the retained inputs audited, with outcomes that are
// due at once.
func addAudits(t *testing.T, path string) {
	t.Helper()
	set, err := policy.Parse(policy.File{Name: filepath.Base(path), Data: []byte(getFile(t, path))})
	if err != nil {
		t.Fatal(err)
	}
	p := *set.All()[0]
	p.Audit = &policy.Audit{Rate: 0.5, M: 1, Due: policy.Second, PredictedCritical: policy.CriticalAudited, OnBreach: policy.AlarmOnBreach,
		RunLength: policy.DefaultRunLength, ReaderSensitivity: 1}
	putFile(t, path, string(p.Marshal()))
}

// sendReviewed sends a recording as a client that takes receipts, and returns the outcomes of what a
// person is asked to look at. The truth is that of the labels.
func sendReviewed(t *testing.T, c *client.Client, model, name string, classes []string) (outcomes []*ckdv1.Outcome) {
	t.Helper()
	passes, err := record.ReadPasses(recording(name), record.Options{})
	if err != nil {
		t.Fatal(err)
	}
	labels, err := record.ReadLabels(strings.Replace(recording(name), ".passes.", ".labels.", 1))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Session(t.Context(), client.SessionConfig{Model: model, ModelVersion: "v1", Receipts: client.ReceiptsReviewed})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const inputs = 100 // inputs of a group
	for first := 0; first < passes.N; first += inputs {
		ids := make([]string, min(inputs, passes.N-first))
		for i := range ids {
			ids[i] = fmt.Sprint(first + i)
		}
		g, err := s.Open(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		for pass := range passes.S {
			if err := g.Send(passes.Float32[(pass*passes.N+first)*passes.K:][:len(ids)*passes.K]); err != nil {
				t.Fatal(err)
			}
		}
		results, err := g.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			if r.Review() {
				outcomes = append(outcomes, &ckdv1.Outcome{Receipt: r.Receipt(), Truth: classes[labels[first+i]], Source: "room"})
			}
		}
	}
	return outcomes
}

// answerReviews sends a recording and then the outcomes of its reviews to the daemon with the ledger.
// It returns how many outcomes there were.
func answerReviews(t *testing.T, d *testbed.Daemon, model, name string, classes []string) int {
	t.Helper()
	c, err := client.Dial(d.GRPC[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	outcomes := sendReviewed(t, c, model, name, classes)
	answers, err := c.ReportOutcomes(t.Context(), outcomes, client.Reconnect{})
	if err != nil || len(answers) == 0 {
		t.Fatalf("%d outcomes, error %v", len(answers), err)
	}
	for _, a := range answers {
		if a.GetError() != nil {
			t.Fatalf("an outcome was not counted: %v", a)
		}
	}
	return len(outcomes)
}
