// Command speed compares ckd's speed with that of others, in one run, and prints the tables of
// BENCHMARKS.md:
//
//	go run ./bench/speed [-only kernel,daemon,memory]
//
// Its parts:
//
//   - kernel: ckd's kernel alone beside C with AVX-512 and AVX2 intrinsics (package ckernel; needs
//     cgo), and decomp's whole results beside numpy (kernel.py; needs a Python with numpy). All must
//     agree to 1e-9 before they are timed.
//   - daemon: `ckd serve` beside servers that do the same in the common way (idiomatic.go), and a
//     server that looks at nothing (sink.go), in processes of their own, under the same load. All
//     answers but the sink's are held against decomp's first.
//   - memory of open streams.
//
// The programs take turns, and each round begins with another one. A ratio is formed within a
// round, and the table shows the median over the rounds. A program compared with itself shows how
// far chance goes. Where there are two cores and taskset, the servers have one and all else has the
// other: nothing else should run then.
//
// With -quick everything runs once and briefly, to see that it works: its figures say nothing.
//
// It exits with 1 where something fails or the numbers disagree, and with 2 for wrong usage.
package main
