// Package arriving counts and bounds the memory of messages that are coming in.
//
// A Pool hands out the buffers that gRPC reads large frames and unpacks messages into, and knows how
// many bytes of them are in use. Importing the package also replaces gRPC's gzip by one that stops
// unpacking where there is no room: see LimitUnpacking.
package arriving
