package integration_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/timed"
)

// fleet runs three daemons with equal policies and one Prometheus that scrapes them.
type fleet struct {
	t          *testing.T
	replicas   []*replica
	prometheus *testbed.Prometheus
}

// startFleet starts a fleet. The policy's version must be integration; each replica gets a version
// of its own.
func startFleet(t *testing.T, policy string, args ...string) *fleet {
	t.Helper()
	timed.Full(t)
	binary, promtool := testbed.Program(t, "prometheus", "PROMETHEUS"), testbed.Program(t, "promtool", "PROMTOOL")
	f := &fleet{t: t}
	var daemons []*daemon
	for i := range 3 {
		version := fmt.Sprintf("replica-%d", i)
		file := writePolicy(t, strings.Replace(policy, "version: integration", "version: "+version, 1))
		r := &replica{version: version, policy: file}
		r.args = append([]string{"--listen", steadyAddress(t), "--admin", steadyAddress(t)}, args...)
		r.start(t)
		f.replicas, daemons = append(f.replicas, r), append(daemons, r.daemon)
	}
	f.prometheus = testbed.StartPrometheus(t, binary, scrapeConfig(t, promtool, daemons...))
	f.areUp()
	return f
}

// areUp waits until Prometheus finds all replicas up.
func (f *fleet) areUp() {
	f.t.Helper()
	eventually(f.t, "Prometheus finds all replicas up", func() bool {
		return len(f.prometheus.Query("up == 1", "")) == len(f.replicas)
	})
}

// dial returns a client that balances over some addresses under one name.
func (f *fleet) dial(addresses ...string) *client.Client {
	f.t.Helper()
	name := manual.NewBuilderWithScheme("replicas")
	var state resolver.State
	for _, a := range addresses {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	name.InitialState(state)
	c, err := client.Dial("replicas:///ckd", client.WithBalancing(), client.WithInsecure(),
		client.WithDialOptions(grpc.WithResolvers(name)))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (f *fleet) addresses() (all []string) {
	for _, r := range f.replicas {
		all = append(all, r.GRPC[0])
	}
	return all
}

func (f *fleet) versions() (all []string) {
	for _, r := range f.replicas {
		all = append(all, r.version)
	}
	return all
}

// agrees checks that Prometheus has counted what each replica answered, and that all have the same
// policy. Nothing may be in flight.
func (f *fleet) agrees(l *load) {
	f.t.Helper()
	f.areUp()
	f.prometheus.Scraped(time.Now())
	each, all := map[string]interval{}, 0
	for _, r := range f.replicas {
		answered := l.answered(r.version)
		if answered == 0 {
			f.t.Errorf("%s has answered nothing", r.version)
		}
		each[r.instance()] = about(float64(answered))
		all += answered
	}
	f.asks("sum by (instance) (ckd_decisions_total)", "instance", each)
	f.asks("sum by (model) (ckd_decisions_total)", "model", map[string]interval{loadModel: about(float64(all))})
	f.asks("sum by (model) (ckd_passes_total)", "model", map[string]interval{loadModel: about(float64(all * l.passes))})
	f.asks("count by (model) (ckd_policy_info)", "model", map[string]interval{loadModel: about(float64(len(f.replicas)))})
	f.asks("count by (model) (count by (model, hash) (ckd_policy_info))", "model", map[string]interval{loadModel: about(1)})
}

// canary compares the queries of docs/upgrade.md by policy version with the answers that name the
// version. Here each replica has a version of its own, so rates come from one instance and shares
// are exact.
func (f *fleet) canary(l *load) {
	f.t.Helper()
	scraped := f.prometheus.Scraped(time.Now())
	shares, inForce := map[string]interval{}, map[string]interval{}
	for _, r := range f.replicas {
		lines, deferred := l.lines(r.version), 0
		for _, line := range lines {
			if line.Decision.Action == "defer" {
				deferred++
			}
		}
		labels := model.Metric{"model": loadModel, "version": model.LabelValue(r.version)}
		shares[labels.String()] = about(float64(deferred) / float64(len(lines)))
		labels["hash"] = f.hash()
		inForce[labels.String()] = about(1)
	}
	blocks := regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(readPage(f.t, "upgrade.md"), -1)
	if len(blocks) != 2 {
		f.t.Fatalf("docs/upgrade.md shows %d queries, of which this test knows two", len(blocks))
	}
	checkQuery(f.t, f.prometheus, blocks[0][1], scraped, shares)
	checkQuery(f.t, f.prometheus, blocks[1][1], scraped, inForce)
}

// hash returns the hash of the one policy in force.
func (f *fleet) hash() model.LabelValue {
	f.t.Helper()
	policies := f.prometheus.Query("group by (hash) (ckd_policy_info)", "")
	if len(policies) != 1 {
		f.t.Fatalf("policies in force: %v", policies)
	}
	return policies[0].Metric["hash"]
}

// asks runs a query now. Its series must differ in one label only, and want has a value for each.
func (f *fleet) asks(query, label string, want map[string]interval) {
	f.t.Helper()
	series := map[string]interval{}
	for value, v := range want {
		series[model.Metric{model.LabelName(label): model.LabelValue(value)}.String()] = v
	}
	checkQuery(f.t, f.prometheus, query, "", series)
}

// replica wraps a daemon of a fleet. The version of its policy names it in every answer.
type replica struct {
	*daemon
	version string
	policy  string   // path of its file
	args    []string // its other flags
}

// instance returns Prometheus's name for the replica.
func (r *replica) instance() string { return strings.TrimPrefix(r.Admin, "http://") }

// kill ends the replica with SIGKILL.
func (r *replica) kill() {
	r.t.Helper()
	if err := r.Process.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	<-r.Exited
}

func (r *replica) start(t *testing.T) {
	t.Helper()
	args := append([]string{"serve", "--policy", r.policy}, r.args...)
	r.daemon = &daemon{testbed.Start(t, exec.Command(ckd, args...), 1), t}
}

// again restarts a replica on the same addresses under another version.
func (r *replica) again() {
	r.t.Helper()
	text, err := os.ReadFile(r.policy)
	if err != nil {
		r.t.Fatal(err)
	}
	name := r.version + "-again"
	r.policy = writePolicy(r.t, strings.Replace(string(text), "version: "+r.version, "version: "+name, 1))
	r.version = name
	r.start(r.t)
}

// steadyAddress returns a free address outside the range that the kernel assigns, so that the port
// is still free when a daemon comes back to it.
func steadyAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close() // it accepted no connection
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}
