// Package client sends stochastic passes to a ckd daemon and returns its decisions.
//
// Stability: stable. Exported names are deprecated for one minor version before they change.
//
// An error is never a retain. An input that was answered with an error, or not at all, has not
// been cleared: send it again or show it to a person. [Result.Retained] returns true only for a
// decision to retain.
//
// A [Session] is one stream with many inputs in flight. It suits a model server that runs S passes
// over a batch of B inputs:
//
//	c, err := client.Dial("unix:/run/ckd.sock")
//	...
//	defer c.Close()
//	session, err := c.Session(ctx, client.SessionConfig{Model: "fetal-health"})
//	...
//	group, err := session.Open(ctx, ids) // waits while too many inputs are in flight
//	for range passes {
//		err = group.Send(values) // one pass of the batch: [inputs][classes]
//	}
//	results, err := group.Wait(ctx) // one for every id, in the order of the ids
//	for _, r := range results {
//		if !r.Retained() {
//			askAPerson(r.ID)
//		}
//	}
//	err = session.Close()
//
// When all passes are at hand already, [Client.Decompose] sends them in one call.
//
// A session guarantees:
//   - Every input of every group gets exactly one answer. An input that has none when the session
//     ends gets an [*InputError] that says so.
//   - Nothing waits for ever: contexts end Open and Wait, and the end of the session ends
//     everything else.
//   - Many goroutines may use a client, a session and a group at once.
//   - Values are copied before a call returns and may then be overwritten.
//
// # Connections
//
// Plaintext is allowed on unix sockets and the loopback. For other addresses use [WithTLS] and, for
// a bearer token, [WithTokenFile]. Both read their files again when these change; if a file cannot
// be read then, its last content stays in use. [WithBalancing] spreads streams and calls over
// replicas:
//
//	c, err := client.Dial("dns:///ckd.grading.svc:8590",
//		client.WithBalancing(),
//		client.WithTLS(client.TLSFiles{CA: "/etc/ckd/ca.crt"}),
//		client.WithTokenFile("/var/run/secrets/ckd/token"))
//
// A session uses one replica at a time. To use several at once, open a session for each: sessions
// go round the replicas.
//
// # When the stream breaks
//
// A stream ends with UNAVAILABLE when the daemon stops, dies or is lost, or when the stream has
// reached its maximum age. The session then opens another stream, perhaps to another replica, and
// sends the inputs without an answer again, with all their passes so far; also those that a stopping
// daemon refused (DRAINING). Callers notice only a delay. If an answer was lost on the way, the daemon
// decides that input again and may count it twice; the caller gets one answer.
//
// The session keeps trying as long as [Reconnect] allows. Time counts while any input waits and no
// stream has answered anything since the break. Then the session ends, and the waiting inputs get
// errors that are Unanswered.
//
// An overloaded daemon (OVERLOADED, TOO_MANY_STREAMS, OUT_OF_MEMORY_BUDGET) is tried again after
// the delay that it asks for in google.rpc.RetryInfo. OUT_OF_MEMORY_BUDGET without a delay means that
// the request alone exceeds the budget; it is not sent again. When the daemon lacks room for a single
// input, the others of its group go on. The first stream of a session waits for an overloaded
// daemon, but not for one that cannot be reached.
//
// Any other error ends the session, because sending again would not help:
//   - a policy that was removed, or that now has other classes, kind or passes (POLICY_CHANGED)
//   - results that were not read (SEND_STALLED)
//   - other limits of the daemon, and a broken contract
//   - the end of the session's context
//   - a refused token (UNAUTHENTICATED), unless its file holds another one by then
//
// To be able to send again, a session keeps the encoded passes of inputs without an answer: 4 bytes
// for each class of each pass, and at most twice that while part of a group is answered. With
// Reconnect.Disabled the session keeps nothing.
//
// # Stopping early
//
// Most decisions are clear long before the last pass. With SessionConfig.AcceptSettled, the
// daemon answers such inputs at once if their policy has an early-stopping rule. [Group.Rows]
// returns the inputs that still need passes, so that the model can leave the others out of its next
// batch. [Session.DoRows] runs that loop:
//
//	results, err := session.DoRows(ctx, ids, func(rows []int) ([]float32, error) {
//		return forward(batch, rows) // one pass of these inputs: [rows][classes]
//	})
//
// [Result.Settled] reports such an answer, and Decomposition.Passes how many passes it took. DoRows
// waits for the daemon after each pass, as [Group.Sync] does; the documentation of Group.Rows says
// what it costs not to wait.
//
// # Receipts
//
// With SessionConfig.Receipts, results say which inputs a person should look at ([Result.Review]),
// and carry a sealed record of the decision ([Result.Receipt]) to be kept with the input. Sent back
// with the truth, it lets the daemon find out whether its policy keeps its promise. Retained inputs
// are audited only where a client asks for receipts. Give an input the same id when it is sent
// again: the same passes with the same id are drawn for an audit again, or again not.
//
// # When the daemon does not answer
//
// While a stream or call is open and nothing has come for 15 seconds, the client sends a keepalive
// ping. Without an answer within 10 seconds the connection is lost and the stream breaks, and
// Reconnect.Limit begins to run. The context of Wait or Decompose may end this earlier. A proxy that
// permits fewer pings closes the connection; then set grpc's keepalive parameters with
// [WithDialOptions].
package client
