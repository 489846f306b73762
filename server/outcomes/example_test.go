package outcomes_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server/outcomes"
)

// A daemon that keeps a ledger answers for outcomes, each with a status of its own.
func Example() {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	parsed, err := receipt.ParseKeys("receipt-keys", []byte(strings.Repeat("5a", 32)))
	if err != nil {
		fmt.Println(err)
		return
	}
	keys := func() *receipt.Keys { return parsed }
	l, err := ledger.Open(dir, ledger.Options{Keys: keys})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	file := []byte(`
models:
  - name: lesions
    classes: [benign, malignant]
    critical: [malignant]
    passes: {fewest: 4}
    audit: {rate: 0.02, due: 14d}
`)
	if err := l.AddPolicy(file); err != nil { // elsewhere: a daemon tells it by ReportIssued
		fmt.Println(err)
		return
	}
	set, err := policy.Parse(policy.File{Name: "lesions.yaml", Data: file})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer() // elsewhere: the *server.Server of the daemon
	service := outcomes.Register(server, outcomes.Options{
		Ledger: l, Keys: keys, Log: zap.NewNop(), Answered: func(string, ledger.Status) {}, // elsewhere: a metric
	})

	// A daemon called an input benign, retained and audited it. Its reader finds it malignant.
	audited := receipt.Receipt{Stratum: receipt.CalledSafe, Predicted: 0, Review: true, Propensity: 0.02}
	if _, err := hex.Decode(audited.Policy[:], []byte(set.All()[0].Hash)); err != nil {
		fmt.Println(err)
		return
	}
	sealed := receipt.NewSealer(parsed).Seal(nil, &audited)
	reply, err := service.ReportOutcomes(context.Background(), &ckdv1.ReportOutcomesRequest{Outcomes: []*ckdv1.Outcome{
		{Receipt: sealed, Truth: "malignant", Source: "reader-7"},
		{Receipt: sealed, Truth: "melanoma", Source: "reader-7"},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range reply.GetAnswers() {
		fmt.Printf("%v %q %q\n", a.GetStatus(), a.GetPredicted(), a.GetError().GetMessage())
	}
	// Output:
	// OUTCOME_STATUS_SECOND_READ_WANTED "benign" ""
	// OUTCOME_STATUS_INVALID "" "outcomes[1].truth: found \"melanoma\", expected one of benign, malignant"
}
