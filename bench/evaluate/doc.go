// Command evaluate compares `ckd evaluate` with the same work in plain numpy (evaluate.py), whole
// command against whole command, in one run:
//
//	go run ./bench/evaluate [-rounds 5] [-inputs 7948 -passes 30 -classes 4 -resamples 200]
//
// The recording is synthetic, and the same flags give the same one. Both reports must agree on
// every number before anything is timed; then the two commands take turns. The output has medians,
// CPU time, peak memory and their ratios. The ratios carry over to other machines better than the
// figures do.
//
// With -write DIR it only writes the recording there.
//
// It exits with 1 if something fails or the numbers disagree, with 2 for wrong usage, and with 3
// without a Python that has numpy.
package main
