package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// table prints rows of cells. The first row is the header.
type table struct{ rows [][]string }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(out io.Writer) {
	for i, row := range t.rows {
		fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(out, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	fmt.Fprintln(out)
}

func printMachine(out io.Writer, versions string) {
	bound := "not bound to cores"
	if canPin() {
		bound = fmt.Sprintf("servers bound to core %d, clients and kernels to core %d", serverCore, clientCore)
	}
	fmt.Fprintf(out, "%s, %d cores, %s/%s, %s; %s; %s.\n\n", processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		runtime.Version(), versions, bound)
}

// processor returns the name of the processor, where the system knows it.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

func printKernels(out io.Writer, wide, narrow, scalar []kernelRow) {
	fmt.Fprintf(out, "### Kernel\n\nPasses in, checked, and columns out (mean, variance, third moment, C_k, skewness, "+
		"M_k, mean log mean), in ns per pass x class. Ratios are of times: below 1, the first is faster. ckd's kernels that "+
		"ran, by their own names: %s, %s and %s. The C checks nothing.\n\n", wide[0].Version, narrow[0].Version,
		scalar[0].Version)
	t, u := &table{}, &table{}
	t.add("shape", "ckd kernel, ns", "C AVX-512, ns", "**kernel / C AVX-512**",
		"ckd kernel AVX2, ns", "C AVX2, ns", "**kernel AVX2 / C AVX2**", "ckd kernel scalar, ns", "kernel / itself")
	u.add("shape", "ckd, ns", "ckd / C AVX-512", "ckd AVX2 / C AVX2", "ckd scalar, ns", "**tuned numpy / ckd**",
		"**idiomatic numpy / ckd**", "ckd with CBEC's sets / without", "ckd / itself")
	for i, r := range wide {
		t.add(r.Shape, figure(r.Kernel), figure(r.C), figure(r.KernelOverC),
			figure(narrow[i].Kernel), figure(narrow[i].C), figure(narrow[i].KernelOverC), figure(scalar[i].Kernel),
			figure(r.KernelSame))
		u.add(r.Shape, figure(r.CKD), figure(r.OverC), figure(narrow[i].OverC), figure(scalar[i].CKD), figure(r.TunedOver),
			figure(r.IdiomaticOver), figure(r.SetsOver), figure(r.Same))
	}
	t.print(out)
	fmt.Fprint(out, "The fastest C of each shape: ")
	for i, r := range wide {
		if i > 0 {
			fmt.Fprint(out, "; ")
		}
		fmt.Fprintf(out, "%s: %s and %s", r.Shape, orNone(r.BestC), orNone(narrow[i].BestC))
	}
	fmt.Fprint(out, ".\n\nWhole results, of "+
		"every input: the kernel's columns, their sums over the classes, the scores. The C still stops at the columns. "+
		"Tuned numpy takes all inputs at once and has no CBEC, nor has ckd beside it; idiomatic numpy takes input by input "+
		"and has CBEC, and so has ckd beside it. With sets / without is ckd's time with critical and safe classes, so with "+
		"the pairs of CBEC, over its time without: 2 where they cost as much as all the rest.\n\n")
	u.print(out)
}

func printDaemons(out io.Writer, o *options, rows []daemonRow) {
	fmt.Fprintf(out, "### Daemon\n\n`ckd serve` with everything on, over a unix socket, one stream or 64 calls at a time; "+
		"rounds: %d, of %v s a server. The client has every message made beforehand, and %d groups under way at a time, "+
		"fewer where they have more than %d MiB together. Echo hands the buffers back; sink answers as many bytes as ckd "+
		"without looking; idiomatic does what ckd does in the common way, "+
		"with metrics one Observe for each C_k and skewness, with interceptors also the metrics, request id, log line and "+
		"recovery of calls that ckd has, from the usual middleware. Ratios of throughput: above 1, ckd is faster.\n\n",
		o.rounds, o.seconds, outstanding, outstandingBytes>>20)
	for _, m := range []mode{batched, passByPass, unary} {
		if !slices.ContainsFunc(rows, func(r daemonRow) bool { return r.Mode == m }) {
			continue
		}
		t, u := &table{}, &table{}
		t.add(string(m), "bytes", "groups/s", "inputs/s", "**ckd / echo**", "**ckd / sink**",
			"**ckd / idiomatic**", "**ckd / idiomatic with metrics**", "**ckd / idiomatic with metrics and interceptors**",
			"ckd / itself", "sink / itself")
		u.add(string(m), "ckd, us", "sink, us", "**ckd / sink**", "ckd / idiomatic",
			"**ckd / idiomatic with metrics and interceptors**", "ckd / itself",
			"client busy with ckd", "with sink")
		for _, r := range rows {
			if r.Mode != m {
				continue
			}
			t.add(r.shape().String(), fmt.Sprint(r.Bytes), count(r.Messages), count(r.Messages*float64(r.Inputs)),
				figure(r.Over[atEcho]), figure(r.Over[atSink]), figure(r.Over[atIdiomatic]),
				figure(r.Over[atObserving]), figure(r.Over[atIntercepted]), figure(r.Over[atCKDAgain]), figure(r.SameSink))
			u.add(r.shape().String(), figure(r.CPU*1e6), figure(r.SinkCPU*1e6), figure(r.CPUOver[atSink]),
				figure(r.CPUOver[atIdiomatic]), figure(r.CPUOver[atIntercepted]), figure(r.CPUOver[atCKDAgain]),
				figure(r.ClientBusy), figure(r.SinkClientBusy))
		}
		t.print(out)
		fmt.Fprint(out, "Server CPU of a group, and the share of its core that the client used: "+
			"at 1, the client is the limit.\n\n")
		u.print(out)
	}
}

func printMemory(out io.Writer, rows []memoryRow) {
	fmt.Fprintf(out, "### Memory of open streams\n\nResident memory of a fresh `ckd serve`, %d streams a connection.\n\n",
		streamsPerConnection)
	t := &table{}
	t.add("", "streams", "RSS, MB", "KB a stream")
	for _, r := range rows {
		each := ""
		if r.Streams > 0 {
			each = figure(r.Each / 1e3)
		}
		t.add(r.What, fmt.Sprint(r.Streams), figure(float64(r.Bytes)/1e6), each)
	}
	t.print(out)
}

// figure formats a number with three digits; 0 means not measured.
func figure(x float64) string {
	switch {
	case x == 0 || x != x:
		return "-"
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// count formats a number of things per second with three digits.
func count(x float64) string {
	switch {
	case x >= 1e6:
		return figure(x/1e6) + "M"
	case x >= 1e3:
		return figure(x/1e3) + "k"
	}
	return figure(x)
}

func orNone(name string) string {
	if name == "" {
		return "none"
	}
	return name
}
