// Command go is a small model server: it runs the passes of a toy classifier whose dropout stays
// on, streams them to ckd, and prints a decision for every input. Inputs whose decision is settled
// are left out of the next passes.
//
//	go run ./examples/go --addr 127.0.0.1:8590
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/ckd-project/ckd/client"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("go", flag.ExitOnError)
	addr := flags.String("addr", "127.0.0.1:8590", "address of the daemon: host:port, unix:/path, or dns:///name:port for replicas")
	model := flags.String("model", "fetal-health", "name of the model, as its policy states it")
	balance := flags.Bool("balance", false, "spread streams over the replicas of the name")
	ca := flags.String("ca", "", "file with the certificates of the daemon's authority; turns TLS on")
	cert := flags.String("cert", "", "file with the client's certificate")
	key := flags.String("key", "", "file with the key of the client's certificate")
	token := flags.String("token-file", "", "file with a bearer token")
	inputs := flags.Int("inputs", 8, "inputs in each of two batches")
	passes := flags.Int("passes", 0, "passes of every input; 0 takes the policy's number")
	if err := flags.Parse(args); err != nil {
		return err
	}

	var options []client.Option
	if *ca != "" {
		options = append(options, client.WithTLS(client.TLSFiles{CA: *ca, Cert: *cert, Key: *key}))
	}
	if *token != "" {
		options = append(options, client.WithTokenFile(*token))
	}
	if *balance {
		options = append(options, client.WithBalancing())
	}
	c, err := client.Dial(*addr, options...)
	if err != nil {
		return err
	}
	defer c.Close()

	// The session lives in this context: when it ends, its inputs are abandoned.
	session, err := c.Session(ctx, client.SessionConfig{
		Model: *model, Posterior: "mc-dropout", Passes: *passes, AcceptSettled: true,
		// While ckd is down a batch waits this long, and the next as long again: stay below your requests' deadline.
		Reconnect: client.Reconnect{Limit: 2 * time.Second},
	})
	if err != nil {
		return err
	}
	classes := session.Info().GetClasses()
	toy := newClassifier(len(classes))
	for batch := range 2 {
		ids := make([]string, *inputs)
		for i := range ids {
			ids[i] = fmt.Sprintf("%d-%d", batch, i)
		}
		features := toy.inputs(len(ids))
		results, err := session.DoRows(ctx, ids, func(rows []int) ([]float32, error) {
			return toy.forward(features, rows), nil
		})
		if err != nil {
			return err
		}
		for _, r := range results {
			fmt.Printf("%s\t%s\n", r.ID, describe(r, classes))
		}
	}
	return session.Close()
}

// describe returns what happens to an input, with the names of its classes.
func describe(r client.Result, classes []string) string {
	if r.Err != nil { // never a retain
		return fmt.Sprintf("to a person: %v", r.Err)
	}
	predicted := classes[r.Decomposition.GetPredicted()]
	if r.Retained() {
		return "retained: " + predicted
	}
	decision := r.Decomposition.GetDecision()
	text := fmt.Sprintf("to a person: %v, predicted %s", decision.GetReason(), predicted)
	if decision.DecidingClass != nil {
		text += ", deciding class " + classes[decision.GetDecidingClass()]
	}
	return text
}

// classifier is a layer of random weights that stands for a trained network.
type classifier struct {
	random  *rand.Rand
	weights [][]float64 // [classes][features]
}

const features, dropout = 16, 0.2

func newClassifier(classes int) *classifier {
	c := &classifier{random: rand.New(rand.NewPCG(1, 2))}
	for range classes {
		c.weights = append(c.weights, c.normal(features))
	}
	return c
}

func (c *classifier) normal(n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = c.random.NormFloat64()
	}
	return values
}

func (c *classifier) inputs(n int) [][]float64 {
	inputs := make([][]float64, n)
	for i := range inputs {
		inputs[i] = c.normal(features)
	}
	return inputs
}

// forward computes one pass of some rows of a batch, laid out [rows][classes]. It drops each feature
// with probability dropout.
func (c *classifier) forward(batch [][]float64, rows []int) []float32 {
	var out []float32
	for _, row := range rows {
		input := batch[row]
		kept := make([]float64, features)
		for i, v := range input {
			if c.random.Float64() >= dropout {
				kept[i] = v / (1 - dropout)
			}
		}
		sum := 0.0
		odds := make([]float64, len(c.weights))
		for k, weights := range c.weights {
			logit := 0.0
			for i, w := range weights {
				logit += w * kept[i]
			}
			odds[k] = math.Exp(logit)
			sum += odds[k]
		}
		for _, o := range odds {
			out = append(out, float32(o/sum))
		}
	}
	return out
}
