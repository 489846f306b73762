package calibrate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/ckd-project/ckd/policy"
)

// oneAttempt is the note that every valid certificate gets.
const oneAttempt = "The certificate is for this one attempt: to calibrate again on the same recording in another way voids it."

// attempt is a line of the file that remembers attempts. The file is only ever appended to: once
// before the inputs that certify are looked at, and once with what was found, so that attempts that
// fail or are broken off are remembered too.
type attempt struct {
	Time         time.Time `json:"time"`
	Software     string    `json:"software,omitempty"`
	PassesSHA256 string    `json:"passes_sha256"`
	LabelsSHA256 string    `json:"labels_sha256,omitempty"`
	// ID is the SHA-256 of all options that decide what comes of an attempt.
	ID string `json:"id"`
	// Misses and EarlyStop say in words which certificates were sought, about misses and of an
	// early-stopping rule; empty for none.
	Misses    string `json:"misses,omitempty"`
	EarlyStop string `json:"settle,omitempty"`
	// Found is the hash of the policy that was found, or nothingFound; empty on the first line.
	Found string `json:"found,omitempty"`
}

const nothingFound = "nothing"

// attempts remembers the attempts at a certificate on one recording.
type attempts struct {
	path    string // of the file; empty for none
	own     attempt
	earlier []attempt // other attempts, made before
	// repeated are what this very attempt found before.
	repeated []attempt
	other    *attempt // of repeated, one that found something else
}

// remember adds this attempt to the file, and returns those that were made before. It does nothing
// if no certificate is sought, or nothing tells the recording from others.
//
// The line is written before the file is read, in one piece at the end of the file: of two attempts
// at the same time the one whose line comes first is the first for both.
func (o *Options) remember() (a attempts, err error) {
	a = attempts{path: o.Attempts, own: attempt{
		Time: time.Now().UTC().Truncate(time.Second), Software: o.Source.Software,
		PassesSHA256: o.Source.Passes.SHA256, LabelsSHA256: o.Source.Labels.SHA256,
	}}
	if o.Objective.bounds() > 0 {
		a.own.Misses = fmt.Sprintf("%s, scope %s, seed %d", o.Objective, o.Scope, o.Seed)
	}
	if s := o.EarlyStop; s != nil {
		a.own.EarlyStop = fmt.Sprintf("settle %v, released %v, at confidence %v, seed %d", s.Disagreement, s.released(), s.Confidence, o.Seed)
	}
	if a.own.PassesSHA256 == "" || a.own.Misses == "" && a.own.EarlyStop == "" {
		a.path = ""
	}
	if a.path == "" {
		return a, nil
	}
	options, err := json.Marshal(struct {
		*Options
		BaseHash string
	}{o, o.Base.HashWithoutEarlyStop()})
	if err != nil {
		return a, fmt.Errorf("internal fault, please report it: %w", err)
	}
	a.own.ID = fmt.Sprintf("%x", sha256.Sum256(options))

	before, err := a.read()
	if err != nil {
		return a, err
	}
	isOwn := func(b attempt) bool { return b.ID == a.own.ID }
	if !slices.ContainsFunc(before, isOwn) {
		if err := a.append(a.own); err != nil {
			return a, err
		}
		if before, err = a.read(); err != nil {
			return a, err
		}
	}
	first := slices.IndexFunc(before, isOwn)
	for i, b := range before {
		switch {
		case isOwn(b) && b.Found != "":
			a.repeated = append(a.repeated, b)
		case !isOwn(b) && b.Found == "" && i < first:
			a.earlier = append(a.earlier, b)
		}
	}
	return a, nil
}

// found adds to the file what came of the attempt: the hash of a policy, or none. The same attempt
// may have found something else before, as with another version of the software.
func (a *attempts) found(hash string) error {
	if a.path == "" {
		return nil
	}
	a.own.Found = cmp.Or(hash, nothingFound)
	for i := range a.repeated {
		if a.repeated[i].Found == a.own.Found {
			return nil
		}
		a.other = &a.repeated[i]
	}
	return a.append(a.own)
}

// read returns the attempts of the file on the same passes, in their order; none if there is no
// file.
func (a *attempts) read() ([]attempt, error) {
	data, err := os.ReadFile(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, a.fault(err)
	}
	var all []attempt
	for i, line := range bytes.Split(data, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var one attempt
		if err := json.Unmarshal(line, &one); err != nil || one.ID == "" {
			return nil, fmt.Errorf("%s:%d: no attempt at a certificate, expected a line that ckd calibrate wrote: which certificates were sought "+
				"before cannot be told", a.path, i+1)
		}
		if one.PassesSHA256 == a.own.PassesSHA256 {
			all = append(all, one)
		}
	}
	return all, nil
}

func (a *attempts) append(one attempt) error {
	line, err := json.Marshal(one)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return a.fault(err)
	}
	if _, err = file.Write(append(line, '\n')); err == nil {
		err = file.Sync()
	}
	if err = cmp.Or(err, file.Close()); err != nil {
		return a.fault(err)
	}
	return nil
}

func (a *attempts) fault(err error) error {
	return fmt.Errorf("the attempt at a certificate cannot be remembered, and a certificate holds for the first attempt on a recording "+
		"alone: %w; name another file with --attempts, the same in all attempts on this recording", err)
}

// noticeEarlierAttempt voids the certificate if a certificate was sought on the same recording
// before, by the file of attempts or by the policy that is replaced: of several attempts, one may
// succeed by chance. The new policy records the first attempt too, so the next certificate will also
// be void. Repeating the same calibration finds the same policy and does not count as another
// attempt.
func (c *calibration) noticeEarlierAttempt() {
	r := c.report
	if r.Certificate != nil && c.Source.Passes.SHA256 == "" {
		r.note("the passes came by a pipe, and nothing tells them from others: an earlier attempt on them cannot be noticed, nor a " +
			"later one")
	}
	earlier := c.earlierByPolicy()
	for _, a := range slices.Backward(c.attempts.earlier) { // the first of them is said
		if a.Misses != "" && a.LabelsSHA256 == c.Source.Labels.SHA256 {
			earlier = a.Misses
		}
	}
	if other := c.attempts.other; earlier == "" && other != nil {
		earlier = fmt.Sprintf("%s, which found another policy by %s", other.Misses, cmp.Or(other.Software, "another version"))
	}
	if earlier == "" {
		return
	}
	c.draft.Calibration.EarlierAttempt = earlier
	if r.Certificate != nil && r.Certificate.Void == "" {
		c.void("a certificate was sought on the same recording before (" + earlier + ")")
	}
}

// earlierByPolicy returns the attempt that the replaced policy records, in words; empty for none.
func (c *calibration) earlierByPolicy() string {
	r, was := c.report, c.Replaces
	if was == nil || was.Calibration == nil {
		return ""
	}
	before, on := was.Calibration, was.Calibration.Recording
	if on.PassesSHA256 == "" || on.PassesSHA256 != c.Source.Passes.SHA256 || on.LabelsSHA256 != c.Source.Labels.SHA256 {
		return ""
	}
	if before.Certificate != nil && (before.Objective != r.Objective || was.Hash != r.PolicyHash) {
		return fmt.Sprintf("%s, scope %s, seed %d", before.Objective, before.Scope, before.Seed)
	}
	return before.EarlierAttempt
}

// noticeEarlierRule warns if one of the policies, which may be nil, has a rule that was certified
// on the same passes with another share of either kind, confidence or seed. A certificate about misses is then
// void, because it was tested with the new rule in force.
func (c *calibration) noticeEarlierRule(policies ...*policy.Policy) {
	r, now := c.report, c.draft.EarlyStopping
	if now.PassesSHA256 == "" {
		r.note("the passes came by a pipe, and nothing tells them from others: an earlier attempt to certify a rule on them cannot be " +
			"noticed, nor a later one")
		return
	}
	for _, was := range policies {
		if was == nil || was.EarlyStopping == nil || was.EarlyStopping.PassesSHA256 != now.PassesSHA256 {
			continue
		}
		old := was.EarlyStopping
		if old.PolicyHash == now.PolicyHash && old.Order == now.Order && old.Seed == now.Seed &&
			old.Certificate.Disagreement == now.Certificate.Disagreement && old.Certificate.Released.AtMost == now.Certificate.Released.AtMost &&
			old.Certificate.Confidence == now.Certificate.Confidence {
			continue
		}
		earlier := fmt.Sprintf("settle %v, released %v, at confidence %v, seed %d", old.Certificate.Disagreement,
			old.Certificate.Released.AtMost, old.Certificate.Confidence, old.Seed)
		c.warnOfEarlierRule(earlier)
		return
	}
	for _, was := range c.attempts.earlier {
		if was.EarlyStop != "" {
			c.warnOfEarlierRule(was.EarlyStop)
			return
		}
	}
}

// warnOfEarlierRule warns of a rule that was certified on the same passes, and voids a certificate
// about misses, which was tested with the new rule in force.
func (c *calibration) warnOfEarlierRule(earlier string) {
	r := c.report
	r.warn("a rule was certified on the same passes before (%s): of several attempts the one that succeeds may do so by chance, so "+
		"that the confidence is less than it says; certify on fresh passes", earlier)
	if r.Certificate != nil && r.Certificate.Void == "" {
		c.draft.Calibration.EarlierAttempt = earlier
		c.void("a certificate was sought on the same passes before (" + earlier + ")")
	}
}

// void takes the certificate out of the policy. Earlier says in words what the first attempt was.
func (c *calibration) void(earlier string) {
	r := c.report
	r.Why = slices.DeleteFunc(r.Why, func(why string) bool { return why == oneAttempt })
	r.Certificate.Void = "Void: " + earlier + ", and this is a second attempt on the same data. The policy is written without a " +
		"certificate; certify on fresh data."
	c.draft.Calibration.Certificate = nil
}
