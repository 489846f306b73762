package daemon

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/outcome/ledger"
	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	"github.com/ckd-project/ckd/server"
	"github.com/ckd-project/ckd/server/outcomes"
)

// A message to the ledger stays within these bounds. A policy that is larger goes alone.
const (
	partBytes      = 256 << 10
	leastPartBytes = 16 << 10 // after messages that were too much for the ledger or its network
	partKeys       = 1024     // keys of counts that are read at once
)

// progress records what a ledger has acknowledged. Everything else is told in the next parts.
type progress struct {
	ledger   *ckdv1.LedgerIdentity     // the ledger that acknowledged; nil for none yet
	policies map[string]*policy.Policy // by hash
	position uint64                    // of the server's counts
	sealed   map[receipt.SealerID]uint64
	refused  map[string]string // why the ledger does not take a policy, by hash
	tried    time.Time         // when the ledger last refused a policy
	earlier  int               // how many parts of earlier processes it has, or lately did not take
	left     time.Time         // when it last did not take one; zero for never
}

// refusedFor delays the next try of a policy that the ledger did not take.
const refusedFor = 10 * time.Minute

// refuse leaves a policy out for a while.
func (k *keeper) refuse(hash, why string) { k.progress.refused[hash], k.progress.tried = why, k.now() }

func newProgress(l *ckdv1.LedgerIdentity) progress {
	return progress{ledger: l, policies: map[string]*policy.Policy{}, sealed: map[receipt.SealerID]uint64{}, refused: map[string]string{}}
}

// round lists what is left to tell and to ask until the ledger and this daemon know all of each other.
type round struct {
	sealed map[receipt.SealerID]uint64 // read before any count, so that the counts include these receipts
	ask    []string                    // hashes of policies whose states were not answered yet
	again  map[string]bool             // policies that the ledger said it lacks
	caught bool                        // what this process issued was told up to a moment of the round
	told   bool                        // nothing is left to tell
}

func (k *keeper) newRound() *round {
	if k.now().Sub(k.progress.tried) > refusedFor {
		clear(k.progress.refused)
	}
	k.noteChanges()
	if at := k.progress.left; !at.IsZero() && k.now().Sub(at) > refusedFor {
		k.progress.left, k.progress.earlier = time.Time{}, 0
	}
	r := &round{sealed: k.server.Sealed(), again: map[string]bool{}}
	for _, p := range k.server.Policies() {
		r.ask = append(r.ask, p.Hash)
	}
	return r
}

// noteChanges notes which policies a reload has put in force since the last round.
func (k *keeper) noteChanges() {
	now := map[string]string{}
	for _, p := range k.server.Policies() {
		now[p.Name] = p.Hash
	}
	models := slices.Sorted(maps.Keys(now))
	for model := range k.hashes {
		if now[model] == "" {
			models = append(models, model)
		}
	}
	for _, model := range models {
		if before, after := k.hashes[model], now[model]; k.hashes != nil && before != after && len(k.changes) < mostChanges {
			k.changes = append(k.changes, &ckdv1.PolicyChange{Model: model, Before: before, After: after})
		}
	}
	k.hashes = now
}

// mostChanges bounds the changes that wait for an answer.
const mostChanges = 256

// part holds one message to the ledger, and what its answer will acknowledge.
type part struct {
	*ckdv1.ReportIssuedRequest
	room, used int
	policies   map[string]*policy.Policy
	position   uint64
	sealed     map[receipt.SealerID]uint64
	end        bool                       // it tells the last of what this process has issued so far
	last       bool                       // nothing is left to tell after it
	earlier    *ckdv1.ReportIssuedRequest // the part of an earlier process that it tells; nil for this one
}

// fits takes room for some bytes, and reports whether there was enough. The first bytes always fit.
func (p *part) fits(bytes int) bool {
	if p.used > 0 && p.used+bytes > p.room {
		return false
	}
	p.used += bytes
	return true
}

// next returns the next part of a round: first policies in force, then counts, each after its policy, then
// numbers of sealed receipts. Once it has told these, it tells what earlier processes issued, and then again
// what is new.
func (k *keeper) next(r *round) *part {
	if r.caught {
		if earlier := k.nextEarlier(); earlier != nil {
			return earlier
		}
	}
	p := &part{
		ReportIssuedRequest: &ckdv1.ReportIssuedRequest{
			Process: k.process, Remembered: k.memory.ledger, Time: timestamppb.New(k.now()), ReceiptKeys: k.keys().IDs(), Alarms: k.memory.up(),
			Changes: k.changes,
		},
		room: k.room, policies: map[string]*policy.Policy{}, position: k.progress.position, sealed: map[receipt.SealerID]uint64{},
	}
	for _, inForce := range k.server.Policies() {
		if k.progress.policies[inForce.Hash] != inForce && !k.add(p, inForce) {
			return p
		}
	}
	r.ask = slices.DeleteFunc(r.ask, func(hash string) bool { return k.progress.refused[hash] != "" })
	for _, hash := range r.ask {
		if p.fits(len(hash) + 2) {
			p.PolicyHashes = append(p.PolicyHashes, hash)
		}
	}
	if !k.addCounts(p) {
		return p
	}
	for sealer, n := range r.sealed {
		if had, told := k.progress.sealed[sealer]; told && had == n {
			continue
		}
		m := &ckdv1.SealedCount{Sealer: sealer[:], Count: n}
		if !p.fits(proto.Size(m)) {
			return p
		}
		p.Sealed, p.sealed[sealer] = append(p.Sealed, m), n
	}
	p.end, p.last = true, k.nextEarlier() == nil
	return p
}

// add adds a policy to a part, unless the ledger does not take it, and reports whether it fits.
func (k *keeper) add(p *part, inForce *policy.Policy) bool {
	if k.progress.refused[inForce.Hash] != "" {
		return true
	}
	text := inForce.Marshal()
	if !p.fits(len(text)) {
		return false
	}
	p.Policies, p.policies[inForce.Hash] = append(p.Policies, text), inForce
	return true
}

// addCounts adds the counts that changed since the ledger had them, and reports whether all fit.
func (k *keeper) addCounts(p *part) bool {
	for {
		issued := k.server.Issued(p.position, partKeys)
		if len(issued) == 0 {
			return true
		}
		for len(issued) > 0 {
			end := slices.IndexFunc(issued, func(i server.Issued) bool { return i.Position != issued[0].Position })
			if end < 0 {
				end = len(issued)
			}
			if !k.addKey(p, issued[:end]) {
				return false
			}
			p.position, issued = issued[0].Position, issued[end:]
		}
	}
}

// addKey adds the counts of one key, after its policy.
func (k *keeper) addKey(p *part, issued []server.Issued) bool {
	hash := hex.EncodeToString(issued[0].Policy[:])
	if k.progress.policies[hash] == nil && p.policies[hash] == nil && !k.add(p, issued[0].InForce) {
		return false
	}
	if k.progress.refused[hash] != "" {
		return true
	}
	var counts []*ckdv1.IssuedCount
	bytes := 0
	for _, i := range issued {
		m := outcomes.IssuedMessage(&ledger.Issued{
			Policy: i.Policy, Version: i.Version, Stratum: i.Stratum, Start: time.UnixMicro(i.Start),
			Decisions: i.Decisions, Eligible: i.Eligible, Receipts: i.Receipts, Reviews: i.Reviews,
			Propensity: i.Propensity, InversePropensity: i.InversePropensity, Audit: i.InForce.Audit,
		})
		counts, bytes = append(counts, m), bytes+proto.Size(m)+4
	}
	if !p.fits(bytes) {
		return false
	}
	p.Counts = append(p.Counts, counts...)
	return true
}

// acknowledged notes that the ledger has a part, by its answer. A ledger that lacks a policy gets it and
// all counts once more; if that does not help, the policy is left out.
func (k *keeper) acknowledged(r *round, p *part, answer *ckdv1.ReportIssuedResponse) {
	if p.earlier != nil {
		if unknown := answer.GetUnknownPolicies(); len(unknown) > 0 {
			k.leave(p, fmt.Errorf("it does not know the policy %s", unknown[0]))
			return
		}
		p.earlier.Remembered = answer.GetLedger()
		k.progress.earlier++
		return
	}
	r.caught = r.caught || p.end
	maps.Copy(k.progress.policies, p.policies)
	maps.Copy(k.progress.sealed, p.sealed)
	k.progress.position, r.told = p.position, p.last
	answered := len(p.PolicyHashes)
	if n := int(answer.GetAnsweredPolicies()); n > 0 {
		answered = min(n, answered)
	}
	r.ask = slices.DeleteFunc(r.ask, func(hash string) bool { return slices.Contains(p.PolicyHashes[:answered], hash) })
	for _, hash := range answer.GetUnknownPolicies() {
		if r.again[hash] {
			k.refuse(hash, "does not know it although it was told: are both of one version?")
			continue
		}
		r.again[hash], r.told = true, false
		delete(k.progress.policies, hash)
		k.progress.position = 0
		clear(k.progress.sealed)
	}
	k.room = min(2*k.room, partBytes)
}

// shrink makes parts smaller if one was too much, and reports whether the round can go on. A policy that
// is too large even alone is left out.
func (k *keeper) shrink(p *part, err error) bool {
	code := status.Code(err)
	if code != codes.ResourceExhausted && code != codes.DeadlineExceeded {
		return false
	}
	if len(p.Policies) == 1 && len(p.Counts) == 0 && code == codes.ResourceExhausted {
		for hash := range p.policies {
			k.refuse(hash, fmt.Sprintf("does not take its %d bytes (max-message-bytes there?): %s", len(p.Policies[0]), status.Convert(err).Message()))
		}
		return true
	}
	larger := k.room > leastPartBytes
	k.room = max(k.room/2, leastPartBytes)
	return larger && code == codes.ResourceExhausted
}

// refusedPolicies says which policies the ledger does not take; empty for none.
func (k *keeper) refusedPolicies() (text string) {
	for _, p := range k.server.Policies() {
		if why := k.progress.refused[p.Hash]; why != "" {
			text += fmt.Sprintf("ledger: policy %.12s of model %s: %s %s\n", p.Hash, p.Name, k.place, why)
		}
	}
	return text
}
