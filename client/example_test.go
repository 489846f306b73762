package client_test

import (
	"context"
	"fmt"

	"github.com/ckd-project/ckd/client"
)

// A model server runs three passes over a batch of three inputs. The model overflows on the last
// input, which fails that input alone.
func Example() {
	ctx := context.Background()
	daemon := newFake(3)
	c, stop := daemon.start() // elsewhere: client.Dial("unix:/run/ckd.sock")
	defer stop()

	session, err := c.Session(ctx, client.SessionConfig{Model: "fetal-health"})
	if err != nil {
		panic(err)
	}
	group, err := session.Open(ctx, []string{"anna", "berta", "carla"})
	if err != nil {
		panic(err)
	}
	for _, values := range [][]float32{
		{0.9, 0.1, 0, 0.5, 0.5, 0, 0.8, 0.1, 0.1},
		{0.8, 0.2, 0, 0.9, 0.1, 0, 0.8, nan, 0.1},
		{0.9, 0.1, 0, 0.1, 0.9, 0, 0.8, 0.1, 0.1},
	} {
		if err := group.Send(values); err != nil {
			panic(err)
		}
	}
	results, err := group.Wait(ctx)
	if err != nil {
		panic(err)
	}
	for _, r := range results {
		switch {
		case r.Retained():
			fmt.Println(r.ID, "retained")
		case r.Err != nil: // never a retain
			fmt.Println(r.ID, "to a person:", r.Err)
		default:
			fmt.Println(r.ID, "to a person:", r.Decomposition.GetDecision().GetReason())
		}
	}
	if err := session.Close(); err != nil {
		panic(err)
	}
	// Output:
	// anna retained
	// berta to a person: DECISION_REASON_ABOVE_THRESHOLD
	// carla to a person: pass 1: class 1 is NaN, expected a finite value (InvalidArgument, NOT_FINITE)
}

// A model leaves inputs out of its next pass once they are answered. At most ten passes are
// computed; anna needs only two.
func ExampleSession_DoRows() {
	ctx := context.Background()
	daemon := newFake(10)
	daemon.early = func(in *fakeInput) bool { return in.id == "anna" }
	c, stop := daemon.start()
	defer stop()

	session, err := c.Session(ctx, client.SessionConfig{Model: "fetal-health", AcceptSettled: true})
	if err != nil {
		panic(err)
	}
	batch := [][]float32{{0.9, 0.1, 0}, {0.5, 0.5, 0}}
	results, err := session.DoRows(ctx, []string{"anna", "berta"}, func(rows []int) ([]float32, error) {
		var values []float32
		for _, row := range rows { // a model would compute the next pass of these rows
			values = append(values, batch[row]...)
		}
		return values, nil
	})
	if err != nil {
		panic(err)
	}
	for _, r := range results {
		fmt.Println(r.ID, r.Retained(), r.Decomposition.GetPasses(), r.Settled())
	}
	if err := session.Close(); err != nil {
		panic(err)
	}
	// Output:
	// anna true 2 true
	// berta false 10 false
}
