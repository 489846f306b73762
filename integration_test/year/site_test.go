package year

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/integration_test/testbed"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// clockVariable is the environment variable by which the test sets the clock of each process.
const clockVariable = "CKD_TEST_CLOCK"

// site is a ledger and its replicas. They share policies and receipt keys.
type site struct {
	*testing.T
	binary   string
	dir      string
	rand     *rand.Rand
	begun    time.Time     // the first day
	day      int           // counted from it
	ahead    time.Duration // of the site's time, before that of the system
	ledger   *node
	replicas []*node
	keys     []string         // of receipts; the first seals
	has      *receipt.Keys    // those of the ledger
	every    []string         // key that ever was
	opens    *receipt.Keys    // the same
	terms    map[string]terms // by policy hash
	policy   string           // hash of the one in force
	account  *account
	readers  readers
	inputs   int
	missing  map[string]float64                   // share of the inputs called safe that are critical, by model version
	defers   deferral                             // of what is called safe
	old      []input                              // that clients may send again
	full     bool                                 // the ledger's disk
	lags     bool                                 // the ledger has not got the newest receipt key yet
	backedUp time.Time                            // when the ledger was last backed up
	listed   map[promiseKey]*ckdv1.PromiseFigures // by the ledger when it last answered
	answers  string                               // the alarm that the next policy answers; empty for none
	verdicts map[ckdv1.Verdict]int                // of the ledger, at the comparisons
}

// deferral says whether what is called safe has to be deferred, because an alarm is up.
type deferral int

const (
	never deferral = iota
	perhaps
	always
)

// node is a daemon of the site.
type node struct {
	*testbed.Daemon // nil while it is down
	*client.Client
	site   *site
	name   string
	skew   time.Duration // of its clock
	args   []string
	caps   map[string]*capped // by policy, since it started
	issued map[receipt.Stratum]*issued
}

// issued counts what a daemon has issued of a stratum since it started.
type issued struct {
	inputs, reviews, exceeded int
	expected                  float64 // sum of pi, where reviews are drawn
}

// The model: its first two classes are safe, the others critical.
const modelName = "lesions"

var classes = []string{"clear", "benign", "early", "advanced"}

func isCritical(class int) bool { return class >= 2 }

// newSite starts a site on a day.
func newSite(t *testing.T, seed uint64, begun time.Time, replicas int) *site {
	s := &site{T: t, dir: t.TempDir(), begun: begun, rand: rand.New(rand.NewPCG(seed, 29)), terms: map[string]terms{},
		account: newAccount(), missing: map[string]float64{}, verdicts: map[ckdv1.Verdict]int{}}
	s.readers.site = s
	s.binary = testbed.Build(t, "../../cmd/ckd", "-ldflags", "-X github.com/ckd-project/ckd/internal/clock.variable="+clockVariable)
	s.setTime(begun)
	listen := "unix:" + s.path("ledger.sock")
	s.ledger = s.newNode("ledger", listen, "--ledger-state", s.path("ledger.state"), "--ledger", testbed.Ledger(t, s.binary))
	for i := range replicas {
		name := fmt.Sprintf("replica%d", i)
		s.replicas = append(s.replicas, s.newNode(name, "unix:"+s.path(name+".sock"), "--ledger-at", listen, "--ledger-state", s.path(name+".state")))
	}
	s.addKey()
	s.writePolicy(0, usual)
	for _, n := range s.all() {
		n.start()
	}
	s.learnPolicy(usual)
	return s
}

func (s *site) newNode(name, listen string, args ...string) *node {
	n := &node{site: s, name: name, args: append([]string{"serve", "--listen", listen, "--admin", "127.0.0.1:0",
		"--policy", s.path("policy.yaml"), "--receipt-keys", s.path(name + ".keys")}, args...)}
	n.setClock()
	return n
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// write replaces a file of the site at once.
func (s *site) write(name, text string) {
	s.Helper()
	path := s.path(name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.Fatal(err)
	}
}

// all returns the daemons, the ledger's first; none while the site is being built.
func (s *site) all() []*node {
	if s.ledger == nil {
		return nil
	}
	return append([]*node{s.ledger}, s.replicas...)
}

// nodes returns the daemons that are up.
func (s *site) nodes() []*node {
	return slices.DeleteFunc(s.all(), func(n *node) bool { return n.Daemon == nil })
}

// now returns the site's time.
func (s *site) now() time.Time { return time.Now().Add(s.ahead).UTC() }

// setTime sets the clocks of all daemons. From then on time passes as the system's does.
func (s *site) setTime(at time.Time) {
	s.ahead = time.Until(at).Round(time.Millisecond)
	for _, n := range s.all() {
		n.setClock()
	}
}

// setSkew lets a daemon's clock differ from the site's.
func (n *node) setSkew(skew time.Duration) {
	n.skew = skew
	n.setClock()
}

func (n *node) setClock() { n.site.write(n.name+".clock", (n.site.ahead + n.skew).String()) }

// start starts the daemon.
func (n *node) start() {
	n.site.Helper()
	c := exec.Command(n.site.binary, n.args...)
	c.Env = append(os.Environ(), clockVariable+"="+n.site.path(n.name+".clock"))
	n.Daemon = testbed.Start(n.site.T, c, 1)
	n.caps, n.issued = map[string]*capped{}, map[receipt.Stratum]*issued{}
	var err error
	if n.Client, err = client.Dial(n.GRPC[0]); err != nil {
		n.site.Fatal(err)
	}
}

// stop ends the daemon as a deployment does.
func (n *node) stop() {
	n.site.Helper()
	if code := n.Stop(); code != 0 {
		n.site.Errorf("%s: exit %d", n.name, code)
	}
	n.down()
}

// kill ends the daemon at once, once it has kept what it issued.
func (n *node) kill() {
	n.decide("v1", n.site.traffic("v1", 1))
	began := time.Now()
	n.site.setTime(n.site.now().Add(2 * time.Minute))
	testbed.Eventually(n.site.T, n.name+" keeps what it issued", func() bool {
		info, err := os.Stat(n.site.path(n.name + ".state.issued"))
		return err == nil && info.ModTime().After(began)
	})
	_ = n.Process.Process.Kill()
	<-n.Exited
	n.down()
}

func (n *node) down() {
	_ = n.Close()
	n.Daemon, n.Client = nil, nil
}

// fillDisk lets the ledger write nothing beyond the first KiB of any file, or ends that. Meanwhile the
// ledger is not told of decisions, and the daemons know what it said before.
func (s *site) fillDisk(full bool) {
	s.Helper()
	if full {
		s.listed, s.account.stuck = s.compare().promises, s.now()
	} else {
		s.account.stuck = time.Time{}
		for d := range s.account.all() {
			d.untold = false
		}
	}
	var limit unix.Rlimit
	pid := s.ledger.Process.Process.Pid
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &limit); err != nil {
		s.Fatal(err)
	}
	if s.full = full; full {
		limit.Cur = 1 << 10
	} else {
		limit.Cur = limit.Max
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		s.Fatal(err)
	}
	if full { // it notices when it is to write, and the daemons after a minute
		s.decideAll(10)
		s.setTime(s.now().Add(2 * time.Minute))
	}
	s.told()
}

// ledgerFolder returns the folder of the ledger.
func (s *site) ledgerFolder() string { return s.ledger.args[len(s.ledger.args)-1] }

// addKey puts a new receipt key in force; those before go on opening receipts. Equal inputs are no longer
// drawn alike.
func (s *site) addKey() {
	s.newKey()
	s.setKeys(s.all()...)
}

// addKeyLate has the replicas seal by a new key that the ledger does not have, or gives it to the ledger.
func (s *site) addKeyLate(lags bool) {
	s.lags, s.old = lags, nil
	if !lags {
		s.setKeys(s.ledger)
		return
	}
	s.newKey()
	s.setKeys(s.replicas...)
}

func (s *site) newKey() {
	var key [32]byte
	for i := range key {
		key[i] = byte(s.rand.Uint32())
	}
	s.every = append([]string{hex.EncodeToString(key[:])}, s.every...)
	s.opens, s.old = s.parseKeys(s.every), nil
	s.keys = append(s.every[:1:1], s.keys...)
}

// loseKeys leaves the daemons the key that seals alone.
func (s *site) loseKeys() {
	s.keys = s.keys[:1]
	s.setKeys(s.all()...)
}

func (s *site) parseKeys(keys []string) *receipt.Keys {
	parsed, err := receipt.ParseKeys("keys", []byte(strings.Join(keys, "\n")))
	if err != nil {
		s.Fatal(err)
	}
	return parsed
}

// setKeys writes the key files of daemons, and waits until they have read them.
func (s *site) setKeys(nodes ...*node) {
	for _, n := range nodes {
		if n == s.ledger {
			s.has = s.parseKeys(s.keys)
		}
		before := 0
		if n.Daemon != nil {
			before = n.keysRead()
		}
		s.write(n.name+".keys", strings.Join(s.keys, "\n")+"\n")
		if n.Daemon != nil {
			n.reload()
			testbed.Eventually(s.T, n.name+" has read the receipt keys", func() bool { return n.keysRead() > before })
		}
	}
}

// keysRead returns how often a daemon has read other receipt keys.
func (n *node) keysRead() (times int) {
	for line := range strings.Lines(n.Log()) {
		if strings.Contains(line, `"msg":"reloaded"`) && strings.Contains(line, "receipt-keys") {
			times++
		}
	}
	return times
}

// reload has a daemon read its files now.
func (n *node) reload() { _ = n.Process.Process.Signal(syscall.SIGHUP) }

// writePolicy puts the policy of a month in force: one threshold more or less each time.
func (s *site) writePolicy(month int, t terms) {
	s.Helper()
	audit := fmt.Sprintf("rate: %v, m: 1, due: 14d, on_breach: defer, surge: 600, run_length: %v", t.rate, t.runLength)
	if t.cap > 0 {
		audit += fmt.Sprintf(", cap: %v", t.cap)
	}
	if t.free {
		audit += ", predicted-critical: free"
	}
	answers := ""
	if s.answers != "" {
		answers = fmt.Sprintf("    answers: {alarm: %q, by: ann, reason: the model was repaired}\n", s.answers)
	}
	s.write("policy.yaml", fmt.Sprintf(`models:
  - name: %s
    version: m1
    classes: [%s]
    critical: [%s]
    passes: {fewest: %d}
    primary: {score: entropy, threshold: %.3f}
    fallback: {score: maxprob, threshold: 0.5}
    audit: {%s}
%s    calibrated:
      certificate: {kind: learn-then-test, bounds: critical-fnr, target: %v, confidence: 0.9}
      lines: {critical_miss_rate: %v, classes: [{class: %s, critical_miss_rate: %v}, {class: %s, critical_miss_rate: %v}], by: ann, on: "2030-12-01"}
`, modelName, strings.Join(classes, ", "), strings.Join(classes[2:], ", "), passes, 0.8+0.001*float64(month), audit, answers,
		t.fnrLine, t.missRateLine, classes[2], classLine, classes[3], classLine))
	if len(s.nodes()) == 0 {
		return
	}
	for _, n := range s.nodes() {
		n.reload()
	}
	before := s.policy
	testbed.Eventually(s.T, "the policy is in force everywhere", func() bool {
		for _, n := range s.nodes() {
			if n.hash() == before {
				return false
			}
		}
		return true
	})
	s.learnPolicy(t)
	if s.answers != "" {
		s.answers = ""
		s.account.end(0, s.now())
	}
}

// learnPolicy notes the hash of the policy in force.
func (s *site) learnPolicy(t terms) {
	s.policy = s.ledger.hash()
	s.terms[s.policy] = t
}

// hash returns the hash of the policy that a daemon has in force.
func (n *node) hash() string { return n.model().GetPolicy().GetHash() }

func (n *node) model() *ckdv1.Model {
	m, err := n.Model(n.site.Context(), modelName)
	if err != nil {
		n.site.Fatalf("%s: %v", n.name, err)
	}
	return m
}

// passes is how many passes each input has.
const passes = 4

// input is one input with its passes.
type input struct {
	id        string
	predicted int
	certain   bool // the policy retains it
	truth     int
	values    []float32 // [pass][class]
}

// newInput returns an input that the model calls a class.
func (s *site) newInput(predicted int, certain bool, truth int) input {
	s.inputs++
	in := input{id: fmt.Sprintf("case/%d", s.inputs), predicted: predicted, certain: certain, truth: truth}
	for pass := range passes {
		weights, sum := [4]float64{}, 0.0
		apart := float64(pass % 2) // passes that hardly differ would be deferred
		for k := range weights {
			weights[k] = 0.8 + 0.4*s.rand.Float64()
			switch {
			case k == predicted && certain:
				weights[k] *= 20 + 60*apart + 10*s.rand.Float64()
			case k == predicted:
				weights[k] *= 2 + 0.5*apart
			}
			sum += weights[k]
		}
		for _, w := range weights {
			in.values = append(in.values, float32(w/sum))
		}
	}
	return in
}

// traffic returns the inputs that a version of the model sees in a part of a day: of ten six are called
// safe, two are called critical and two are deferred.
func (s *site) traffic(version string, n int) (all []input) {
	happens := func(p float64) bool { return s.rand.Float64() < p }
	class := func(critical bool) int {
		if critical {
			return 2 + s.rand.IntN(2)
		}
		return s.rand.IntN(2)
	}
	for i := range n {
		switch {
		case i%10 < 6:
			all = append(all, s.newInput(class(false), true, class(happens(s.missing[version]))))
		case i%10 < 8:
			all = append(all, s.newInput(class(true), true, class(happens(0.8))))
		default:
			all = append(all, s.newInput(class(happens(0.5)), false, class(happens(0.4))))
		}
	}
	return all
}

// decide has a daemon decide inputs of a model version, and writes down what it said.
func (n *node) decide(version string, inputs []input) {
	s := n.site
	s.Helper()
	b := client.Batch{Model: modelName, ModelVersion: version, Receipts: client.ReceiptsAll, Passes: passes, Inputs: len(inputs)}
	for _, in := range inputs {
		b.IDs = append(b.IDs, in.id)
	}
	for pass := range passes {
		for _, in := range inputs {
			b.Values = append(b.Values, in.values[pass*len(classes):(pass+1)*len(classes)]...)
		}
	}
	results, err := n.Decompose(s.Context(), b)
	if err != nil {
		s.Fatalf("%s: %v", n.name, err)
	}
	for i, r := range results {
		in := inputs[i]
		opened, number, err := s.opens.Open(r.Receipt())
		if err != nil || r.Err != nil {
			s.Fatalf("%s: input %s: %v, %v", n.name, in.id, r.Err, err)
		}
		d := &decision{id: in.id, receipt: r.Receipt(), number: number, at: time.UnixMicro(opened.Time).UTC(), stratum: opened.Stratum,
			pi: float64(opened.Propensity), review: opened.Review, predicted: int(opened.Predicted), truth: in.truth, untold: s.full}
		hash := r.Policy.GetHash()
		s.check(n, in, r, d, hash)
		s.account.add(promiseKey{hash, version}, s.terms[hash], d)
		s.readers.take(d)
	}
}

// check compares a decision with what the policy says of its input, and with its receipt.
func (s *site) check(n *node, in input, r client.Result, d *decision, hash string) {
	want, t := receipt.Deferred, s.terms[hash]
	switch {
	case in.certain && isCritical(in.predicted):
		want = receipt.CalledCritical
	case in.certain:
		want = receipt.CalledSafe
	}
	surges := want == receipt.CalledSafe && r.Decomposition.GetDecision().GetReason() == ckdv1.DecisionReason_DECISION_REASON_VIOLATED
	pi := t.pi(want, surges)
	gives := false
	if t.cap > 0 && !surges {
		if n.caps[hash] == nil {
			n.caps[hash] = &capped{perHour: t.cap}
		}
		var factor float64
		factor, gives = n.caps[hash].draw(&t, want, d.at)
		switch pi *= factor; {
		case factor == 1:
		case factor > 0.1:
			s.account.note(s.day/30, "capped")
		default:
			s.account.note(s.day/30, "capped least")
		}
	}
	n.count(d, gives, t.free && want == receipt.CalledCritical)
	switch {
	case d.stratum != want || d.predicted != in.predicted:
		s.account.problem("%s: input %s is of stratum %v and class %d, expected %v and %d: %v", n.name, in.id,
			d.stratum, d.predicted, want, in.predicted, r.Decomposition.GetDecision())
	case math.Abs(d.pi-pi) > 1e-6*pi || d.review != r.Review():
		s.account.problem("%s: input %s of stratum %v is reviewed with a probability of %v (%v), expected %v", n.name, in.id, want,
			d.pi, r.Review(), pi)
	case want == receipt.CalledSafe && (s.defers == never && surges || s.defers == always && !surges):
		s.account.problem("%s: input %s, which is called safe, is deferred: %v", n.name, in.id, surges)
	case r.Retained() != (want != receipt.Deferred && !surges):
		s.account.problem("%s: input %s of stratum %v is retained: %v", n.name, in.id, want, r.Retained())
	case d.at.Sub(s.now().Add(n.skew)).Abs() > time.Hour:
		s.account.problem("%s: input %s was decided at %v, it is %v", n.name, in.id, d.at, s.now())
	}
}

// count counts a decision of the daemon. Of a free one nothing is drawn.
func (n *node) count(d *decision, exceeded, free bool) {
	i := n.issued[d.stratum]
	if i == nil {
		i = &issued{}
		n.issued[d.stratum] = i
	}
	i.inputs++
	if !free {
		i.expected += d.pi
	}
	if d.review {
		i.reviews++
	}
	if exceeded {
		i.exceeded++
	}
}
