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
//   - Every input of every group is answered exactly once. What has no answer when
//     the session ends gets an [*InputError] that says so.
//   - Nothing waits for ever: contexts end Open and Wait, and the end of the
//     session ends everything else.
//   - A client, a session and a group may be used by many goroutines at once.
//   - Values are copied before a call returns, and may then be overwritten.
//
// # Connections
//
// Plaintext is for unix sockets and the loopback. Elsewhere [WithTLS] takes
// certificates and [WithTokenFile] a bearer token, both from files that are read
// again when they change; what cannot be read then leaves in use what was read
// before. [WithBalancing] spreads streams and calls over replicas:
//
//	c, err := client.Dial("dns:///ckd.grading.svc:8590",
//		client.WithBalancing(),
//		client.WithTLS(client.TLSFiles{CA: "/etc/ckd/ca.crt"}),
//		client.WithTokenFile("/var/run/secrets/ckd/token"))
//
// A session is on one replica at a time. To use several at once, open a session for
// each: they go round.
//
// # When the stream breaks
//
// A stream ends UNAVAILABLE when the daemon stops, dies or is lost, or when the
// stream has reached its age. The session then opens another, which grpc may lead
// to another replica, and sends what has no answer: for every group the inputs
// that wait, with all their passes so far. Inputs that a stopping daemon refused
// (DRAINING) are among them. Callers notice nothing but time. An answer that came
// before the break stands. One that was lost on the way is asked for again, so that
// the daemon's counts may hold an input twice; the caller gets one answer.
//
// This goes on for as long as [Reconnect] allows. Time counts while any input waits
// and no stream has answered anything since the break: a daemon that takes streams
// and breaks them at once is given up too. Then the session ends, with errors that
// are Unanswered. Attempts are apart by a delay that grows, with some chance in it;
// Dial sets grpc's own delays to the same defaults.
//
// A daemon that has too much to do (OVERLOADED, TOO_MANY_STREAMS,
// OUT_OF_MEMORY_BUDGET) is tried again too, not before the delay that it asks for in
// google.rpc.RetryInfo; a delay that is longer than what is left of the limit ends
// the attempts at once. What would take all its memory alone comes without a delay,
// and is not sent again. So is a single input for which it has no room at the moment,
// while the others of its group go on: within the limit it is sent again on the same
// stream, and then answered with the daemon's error. The first stream of a session
// waits for an overloaded daemon, but not for one that is not there.
//
// Everything else ends the session, as sending again would not mend it: a policy
// that was removed or changed its shape (POLICY_CHANGED: from the daemon, or found
// when the stream is opened again with other classes, kind or passes), results that
// were not read (SEND_STALLED), other limits of all kinds, a broken contract, the
// session's context. A token that is refused (UNAUTHENTICATED) does, unless its file
// holds another by then.
//
// Limits of the daemon may be other ones on the next stream. If it admits fewer
// inputs than wait, they go up in turns, as answers make room.
//
// To send again, a session keeps the passes of inputs without an answer, as they
// were encoded for the wire: 4 bytes for every class of every pass, at most twice
// that while part of a group is answered. A full window of 1024 inputs with 30
// passes of 10 classes is 1.2 MB. Reconnect.Disabled keeps nothing.
//
// # Passes that are not needed
//
// Most decisions are settled long before the last pass. SessionConfig.AcceptSettled has
// inputs answered by then, where their policy has a rule for it. [Group.Rows] says which
// inputs still need passes, so that the model leaves the others out of its next batch;
// [Session.DoRows] is that loop:
//
//	results, err := session.DoRows(ctx, ids, func(rows []int) ([]float32, error) {
//		return forward(batch, rows) // one pass of these inputs: [rows][classes]
//	})
//
// [Result.Settled] tells such an answer, and Decomposition.Passes on how many passes it
// is. DoRows waits for the daemon after each pass, as [Group.Sync] does; Group.Rows says
// what it costs not to wait.
//
// A new stream asks for it again, and an input that is sent again may be settled again;
// a daemon that is older, or stopped settling, has all passes of all inputs.
//
// # When the daemon does not answer
//
// A daemon may be connected and yet frozen: a process or a machine that was stopped, a
// network that drops packets. While a stream or call is open and nothing has come
// for 15 seconds, the client sends a keepalive ping; without an answer within 10
// seconds the connection is lost, and so the stream breaks. Reconnect.Limit runs from
// there: by default, inputs come back as unanswered 55 seconds after the daemon's last
// sign of life. The context that is given to Wait or Decompose may end it earlier.
//
// The daemon permits pings every 10 seconds. A proxy between the two may not, and closes
// the connection; [WithDialOptions] takes grpc's keepalive parameters then.
package client
