// Package wire reads and writes the two hot messages of the wire by hand: the blocks of passes that
// come in, and the replies that go out. All other messages use the generated code.
//
// Codec is the way in and out. Given to grpc.ForceServerCodecV2, it receives a message into an
// Incoming, in the transport's own buffers, and hands the bytes of an Outgoing to the transport.
// Neither is copied. It passes everything else to the standard codec.
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
