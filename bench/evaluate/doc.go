// Command evaluate compares `ckd evaluate` with the same work in plain numpy (evaluate.py), whole command against whole
// command, in one run:
//
//	go run ./bench/evaluate [-rounds 5] [-inputs 7948 -passes 30 -classes 4 -resamples 200]
//
// The recording is synthetic, and the same for the same flags. Before anything is timed, both reports must agree on
// every number; then the two take turns. Printed are medians, CPU time, peak memory, and their ratios: figures of one
// machine and one run say little, their ratio says more.
//
// With -write DIR it only writes the recording there.
//
// It exits with 1 where something fails or the numbers disagree, with 2 for wrong usage, and with 3 where there is no
// Python with numpy.
package main
