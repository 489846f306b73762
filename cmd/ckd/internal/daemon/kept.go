package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/files"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// keptIssued keeps through restarts what processes of this daemon issued, in the parts in which a ledger is
// told. A ledger that was away when a process ended lacks some of it, and so does an older copy that is put
// back: without it, reviews of that process whose outcomes never come would not count as overdue.
type keptIssued struct {
	file    string
	earlier []*ckdv1.ReportIssuedRequest // of processes that have ended; remembered names the ledger that has the part

	position uint64    // of the server's counts as of the last write
	complete bool      // the ledger had all of them
	next     time.Time // when the file may be written again
	fault    string    // why it could not be; empty where it could
}

const (
	keepEvery = time.Minute         // at least, between writes of the file
	keepShare = 200                 // or so many times what the last one took
	keptFor   = 31 * 24 * time.Hour // as the counts of this process
	mostKept  = 48 << 20            // bytes of earlier processes; the oldest go first
)

// issuedFile returns where a daemon keeps what it issued; "" for nowhere. Without ledger-state, a daemon that
// keeps a ledger has it beside that.
func issuedFile(c *config.Config) string {
	switch {
	case c.LedgerState != "":
		return c.LedgerState + ".issued"
	case c.Ledger != "":
		return filepath.Join(c.Ledger, "issued")
	}
	return ""
}

// read reads the file; of one that was cut, what can be read, and the error says so.
func (i *keptIssued) read() error {
	if i.file == "" {
		return nil
	}
	data, err := os.ReadFile(i.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for r := bytes.NewReader(data); err == nil && r.Len() > 0; {
		p := &ckdv1.ReportIssuedRequest{}
		if err = (protodelim.UnmarshalOptions{MaxSize: 2 * mostKept}).UnmarshalFrom(r, p); err == nil {
			i.earlier = append(i.earlier, p)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: not all of what earlier processes issued can be read: %w", i.file, err)
	}
	return nil
}

// write writes what earlier processes issued within a month, and the parts of this one. A process is kept
// whole or not at all: its first parts have the policies of the others.
func (i *keptIssued) write(now time.Time, parts []*ckdv1.ReportIssuedRequest) error {
	recent, sizes, order := map[string]bool{}, map[string]int{}, []string(nil) // by process
	for _, p := range i.earlier {
		name := p.GetProcess()
		if sizes[name] == 0 {
			order = append(order, name)
		}
		sizes[name] += proto.Size(p)
		recent[name] = recent[name] || slices.ContainsFunc(p.GetCounts(), func(c *ckdv1.IssuedCount) bool { return now.Sub(c.GetStart().AsTime()) < keptFor })
	}
	size := 0
	for _, name := range slices.Backward(order) {
		if size += sizes[name]; size > mostKept {
			recent[name] = false
		}
	}
	all := slices.DeleteFunc(slices.Clone(i.earlier), func(p *ckdv1.ReportIssuedRequest) bool { return !recent[p.GetProcess()] })
	all = append(all, parts...)
	if len(all) == 0 {
		return nil
	}
	var data bytes.Buffer
	for _, p := range all {
		if _, err := protodelim.MarshalTo(&data, p); err != nil {
			return err
		}
	}
	return files.Replace(i.file, data.Bytes(), 0o600)
}

// keepIssued keeps what this process has issued so far, if that has changed. The caller holds mu.
func (k *keeper) keepIssued() {
	i := &k.issued
	if i.file == "" || i.fault == "" && len(k.server.Issued(i.position, 1)) == 0 && i.complete == (k.has != nil) {
		return
	}
	began := time.Now()
	progress, room := k.progress, k.room
	k.progress, k.room = newProgress(nil), leastPartBytes // which every ledger takes
	k.progress.earlier = len(i.earlier)
	var parts []*ckdv1.ReportIssuedRequest
	for r := k.newRound(); !r.told; {
		p := k.next(r)
		parts = append(parts, &ckdv1.ReportIssuedRequest{Process: p.Process, Policies: p.Policies, Counts: p.Counts, Sealed: p.Sealed, Remembered: k.has})
		k.acknowledged(r, p, nil)
	}
	i.position, i.complete = k.progress.position, k.has != nil
	k.progress, k.room = progress, room
	fault := ""
	if err := i.write(k.now(), parts); err != nil {
		fault = err.Error()
	}
	if fault != "" && fault != i.fault {
		k.log.Warn("what this daemon issued cannot be kept: after a restart, a ledger that lacks it would not be told again", zap.String("file", i.file), zap.String("why", fault))
	}
	i.fault, i.next = fault, k.now().Add(max(keepEvery, keepShare*time.Since(began)))
}

// nextEarlier returns the next part of an earlier process that the ledger may lack; nil for none. What
// another ledger was told is not told to this one: its outcomes went there.
func (k *keeper) nextEarlier() *part {
	for ; k.progress.earlier < len(k.issued.earlier); k.progress.earlier++ {
		kept := k.issued.earlier[k.progress.earlier]
		if had, now := kept.GetRemembered(), k.progress.ledger; had != nil && now != nil && (!sameLedger(had, now) || sameCopy(had, now) && !older(now, had)) {
			continue
		}
		told := proto.CloneOf(kept)
		told.Remembered = nil
		return &part{ReportIssuedRequest: told, position: k.progress.position, earlier: kept}
	}
	return nil
}

// leave leaves out a part of an earlier process that the ledger does not take, for a while.
func (k *keeper) leave(p *part, why error) {
	if k.progress.left.IsZero() {
		k.log.Warn("the ledger does not take what was issued before this start; it is told again later", zap.String("ledger", k.place),
			zap.String("process", p.Process), zap.Error(why))
	}
	k.progress.left = k.now()
	k.progress.earlier++
}

// leaves leaves out a part of an earlier process where an error is about that part, and reports whether it did.
func (k *keeper) leaves(p *part, err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.ResourceExhausted, codes.PermissionDenied:
		if p.earlier != nil {
			k.leave(p, err)
			return true
		}
	}
	return false
}
