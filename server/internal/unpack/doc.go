// Package unpack bounds the memory that compressed messages take while they are unpacked.
//
// Importing the package replaces gRPC's gzip by one that stops unpacking where there is no room: see
// Limit.
package unpack
