// Command calibrate measures what calibration is worth, on recordings and against the truth:
//
//	go run ./bench/calibrate
//	go run ./bench/calibrate -certificates
//
// Both go through every recording of internal/recordings that has critical classes. The first prints
// the critical miss rate on the other half of what calibration chose on one half, over random
// halves: beside the naive pick, which is the one of the paper's scores with the fewest misses on the
// first half, and beside the best score with hindsight, by its mean on the other halves.
//
// The second makes certificates of Learn-then-Test on draws with replacement, with the whole
// recording as the truth: how many are violated, and what coverage they certify on average (0 where
// nothing certifies), where inputs are independent and where they come in groups of five.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// seed begins the random numbers that make halves and draws.
const seed = 1

func main() {
	only := flag.String("only", "", "the recordings whose name contains this")
	halves := flag.Int("halves", 40, "random halves")
	certificates := flag.Bool("certificates", false, "print how often certificates are violated instead")
	drawn := flag.String("drawn", "", "of the columns of certificates, those whose name contains this")
	draws := flag.Int("draws", 200, "draws with replacement for certificates")
	flag.Parse()
	var err error
	if *certificates {
		err = violations(*only, *drawn, *draws)
	} else {
		err = misses(*only, *halves)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func inParallel(n int, each func(int) error) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		group.Go(func() error { return each(i) })
	}
	return group.Wait()
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
