package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ckd-project/ckd/bench/internal/host"
)

// usage holds what one run of a command cost.
type usage struct {
	wall, cpu time.Duration
	peak      int64 // resident memory, bytes
}

// execute runs a command and returns what it printed. If out is not nil, the command prints there.
func execute(ctx context.Context, out io.Writer, command ...string) ([]byte, usage, error) {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	var printed, told bytes.Buffer
	c.Stdout, c.Stderr = &printed, &told
	if out != nil {
		c.Stdout = out
	}
	started := time.Now()
	err := c.Run()
	wall := time.Since(started)
	if ctx.Err() != nil {
		return nil, usage{}, ctx.Err()
	}
	if err != nil {
		return nil, usage{}, fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, bytes.TrimSpace(told.Bytes()))
	}
	state := c.ProcessState
	used := usage{wall: wall, cpu: state.UserTime() + state.SystemTime()}
	if r, ok := state.SysUsage().(*syscall.Rusage); ok {
		used.peak = r.Maxrss
		if runtime.GOOS != "darwin" { // which counts bytes
			used.peak *= 1024
		}
	}
	return printed.Bytes(), used, nil
}

// measurements holds the costs of the commands over all rounds.
type measurements struct {
	ckd, numpy, bareCKD, bareNumpy usage
	file                           int64 // bytes
}

// measure runs the commands in rounds. They take turns in being the first.
func (c *commands) measure(ctx context.Context, rounds int) (*measurements, error) {
	info, err := os.Stat(c.passesFile)
	if err != nil {
		return nil, err
	}
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer nowhere.Close()
	all := [][]string{c.ckd, c.numpy, c.bareCKD, c.bareNumpy}
	runs := make([][]usage, len(all))
	for round := range rounds {
		for j := range all {
			which := (round + j) % len(all)
			_, used, err := execute(ctx, nowhere, all[which]...)
			if err != nil {
				return nil, err
			}
			runs[which] = append(runs[which], used)
		}
	}
	return &measurements{
		ckd: summarise(runs[0]), numpy: summarise(runs[1]), bareCKD: summarise(runs[2]), bareNumpy: summarise(runs[3]),
		file: info.Size(),
	}, nil
}

// summarise returns the medians of the times and the largest peak of memory.
func summarise(runs []usage) usage {
	var wall, cpu []time.Duration
	var peak []int64
	for _, r := range runs {
		wall, cpu, peak = append(wall, r.wall), append(cpu, r.cpu), append(peak, r.peak)
	}
	return usage{wall: median(wall), cpu: median(cpu), peak: slices.Max(peak)}
}

func median(of []time.Duration) time.Duration {
	slices.Sort(of)
	return (of[(len(of)-1)/2] + of[len(of)/2]) / 2
}

func (m *measurements) print(out io.Writer, o options, p *host.Python, a *agreement) error {
	fmt.Fprintf(out, "machine: %s, %d cores, %s/%s, %s; %s\n", host.Processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		runtime.Version(), p.Versions)
	fmt.Fprintf(out, "recording: %d inputs x %d passes x %d classes, float32, %s; %d resamples\n", o.inputs, o.passes,
		o.classes, megabytes(m.file), o.resamples)
	fmt.Fprintf(out, "agreement: %d numbers to %.0e (largest difference %.1e), %d over resamples within chance\n\n",
		a.compared, tolerance, a.largest, a.resampled)

	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "rounds: %d\twall\tCPU\tpeak RSS\tover bare\tover bare / file\t\n", o.rounds)
	row := func(name string, u, bare usage) {
		over := u.peak - bare.peak
		fmt.Fprintf(w, "%s\t%.3f s\t%.3f s\t%s\t%s\t%.1f\t\n", name, u.wall.Seconds(), u.cpu.Seconds(), megabytes(u.peak),
			megabytes(over), float64(over)/float64(m.file))
	}
	bare := func(name string, u usage) {
		fmt.Fprintf(w, "%s\t%.3f s\t%.3f s\t%s\t\t\t\n", name, u.wall.Seconds(), u.cpu.Seconds(), megabytes(u.peak))
	}
	row("ckd evaluate", m.ckd, m.bareCKD)
	row("numpy", m.numpy, m.bareNumpy)
	fmt.Fprintf(w, "numpy / ckd\t%.1f\t%.1f\t%.1f\t%.1f\t\t\n", quotient(m.numpy.wall, m.ckd.wall),
		quotient(m.numpy.cpu, m.ckd.cpu), quotient(m.numpy.peak, m.ckd.peak),
		quotient(m.numpy.peak-m.bareNumpy.peak, m.ckd.peak-m.bareCKD.peak))
	bare("bare: ckd version", m.bareCKD)
	bare("bare: import numpy", m.bareNumpy)
	return w.Flush()
}

func quotient[T ~int64](a, b T) float64 { return float64(a) / float64(b) }

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
