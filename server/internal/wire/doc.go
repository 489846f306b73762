// Package wire reads and writes the two hot messages of the wire by hand: the blocks of passes that
// come in, and the replies that go out. All other messages use the generated code.
//
// Codec is the way in and out. Given to grpc.ForceServerCodecV2, it receives a message into an
// Incoming, in the transport's own buffers, and hands the bytes of an Outgoing to the transport.
// Neither is copied. It passes everything else to the standard codec.
//
// The generated decoder copies the values and allocates a message for each block and each result, on a
// node that the daemon shares with a model server. Read by hand, batches have 6.0 to 10.5 times the
// throughput of an idiomatic daemon: see BENCHMARKS.md. A new field of a hot message is added here too; a
// test fails until it is. When Go's protobuf decodes bytes without a copy, or grpc-go drops
// ForceServerCodecV2, measure with go run ./bench/speed: below a ratio of 1.1 the generated code suffices.
//
// Invariants:
//   - A StreamRequest or UnaryRequest accepts exactly the bytes that the generated decoder accepts,
//     and reads the same values. Messages in the form that clients usually write are read in place.
//     The generated decoder reads all others, so that only the usual form is written down twice. It
//     is not given messages with more than 65536 others in them. Fuzz tests compare the two.
//   - An Outgoing whose fields are appended in the order of their numbers has the bytes of the
//     generated encoder in its deterministic form.
//   - Buffers of the transport are kept from Codec.Unmarshal until Incoming.Free. The memory of a
//     reply belongs to the transport from Codec.Marshal until it has freed its last reference, and
//     is reused only then. It is at most four times as large as the reply, or 1152 bytes, so that a
//     client that does not read holds little.
//   - In the steady state, reading a block and writing a reply allocate nothing.
package wire
