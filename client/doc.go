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
// Everything else ends the session, as sending again would not mend it: a policy
// that was removed or changed its shape (POLICY_CHANGED: from the daemon, or found
// when the stream is opened again with other classes, kind or passes), results that
// were not read (SEND_STALLED) and limits of all kinds, a broken contract, the
// session's context. But a daemon that has no room for another stream
// (TOO_MANY_STREAMS) is tried again where one broke.
//
// Limits of the daemon may be other ones on the next stream. If it admits fewer
// inputs than wait, they go up in turns, as answers make room.
//
// To send again, a session keeps the passes of inputs without an answer, as they
// were encoded for the wire: 4 bytes for every class of every pass, at most twice
// that while part of a group is answered. A full window of 1024 inputs with 30
// passes of 10 classes is 1.2 MB. Reconnect.Disabled keeps nothing.
//
// The client sends no keepalive pings: a daemon that was not set up for them
// answers frequent ones by closing the connection. Where a network drops idle
// connections silently, give [WithDialOptions] grpc's keepalive parameters, with
// a time that the server's enforcement policy permits (five minutes unless it
// says otherwise).
package client
