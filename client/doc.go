// Package client sends stochastic passes to a ckd daemon and hands back its
// decisions.
//
// An error is never a retain. An input that was answered with an error, or not
// at all, has not been cleared: treat it as one that a person must see, or send
// it again. [Result.Retained] is true for nothing but a decision to retain.
//
// A [Session] is one stream with many inputs in flight, for a model server that
// runs S passes over a batch of B inputs:
//
//	c, err := client.Dial("unix:/run/ckd.sock")
//	...
//	defer c.Close()
//	session, err := c.Session(ctx, client.SessionConfig{Model: "fetal-health"})
//	...
//	group, err := session.Open(ctx, ids)     // waits while too many inputs are in flight
//	for range passes {
//		err = group.Send(values)         // one pass of the batch: [inputs][classes]
//	}
//	results, err := group.Wait(ctx)          // one for every id, in the order of the ids
//	for _, r := range results {
//		if !r.Retained() {
//			askAPerson(r.ID)
//		}
//	}
//	err = session.Close()
//
// [Client.Decompose] is for passes that are complete.
//
// What a session promises:
//   - Every input of every group is answered exactly once. When the stream
//     breaks, what has no answer gets an [*InputError] that says so.
//   - Nothing waits for ever: contexts end Open and Wait, and the end of the
//     stream ends everything else.
//   - A client, a session and a group may be used by many goroutines at once.
//   - Values are copied before a call returns, and may then be overwritten.
//
// The client sends no keepalive pings: a daemon that was not set up for them
// answers frequent ones by closing the connection. Where a network drops idle
// connections silently, give [WithDialOptions] grpc's keepalive parameters, with
// a time that the server's enforcement policy permits (five minutes unless it
// says otherwise).
package client
