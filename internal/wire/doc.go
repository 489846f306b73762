// Package wire reads and writes the hot messages of the wire by hand: the blocks of passes that come in, and the
// replies that go out. All other messages stay with the generated code.
//
// Codec is the door. Given to grpc.ForceServerCodecV2, it leaves a message that is received into an Incoming in the
// transport's own buffers, and hands the bytes of an Outgoing to the transport; neither is copied. Whatever else
// passes through goes to the standard codec.
//
// Invariants:
//   - A StreamRequest or UnaryRequest accepts the bytes that the generated decoder accepts, no others, and has the
//     same values. Messages as clients write them are read in place; anything unusual is given to the generated
//     decoder, so that only the usual form is written down twice. Fuzz tests compare the two.
//   - An Outgoing, built in the order of its field numbers, has the bytes of the generated encoder in its
//     deterministic form.
//   - Buffers of the transport are kept from Codec.Unmarshal until Incoming.Free. The memory of a reply belongs to
//     the transport from Codec.Marshal until it has freed its last reference; only then is it used again. It is at
//     most four times as large as the reply, or 1152 bytes, so that a client that does not read holds little.
//   - In steady state, reading a block and writing a reply allocate nothing.
package wire
