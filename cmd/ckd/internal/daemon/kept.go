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
	mostKept  = 32 << 20            // bytes; the oldest parts go first
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
		if err = (protodelim.UnmarshalOptions{MaxSize: mostKept}).UnmarshalFrom(r, p); err == nil {
			i.earlier = append(i.earlier, p)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: not all of what earlier processes issued can be read: %w", i.file, err)
	}
	return nil
}

// write writes what earlier processes issued within a month, and the parts of this one.
func (i *keptIssued) write(now time.Time, parts []*ckdv1.ReportIssuedRequest) error {
	recent := map[string]bool{} // by process
	for _, p := range i.earlier {
		recent[p.GetProcess()] = recent[p.GetProcess()] || slices.ContainsFunc(p.GetCounts(), func(c *ckdv1.IssuedCount) bool {
			return now.Sub(c.GetStart().AsTime()) < keptFor
		})
	}
	all := slices.DeleteFunc(slices.Clone(i.earlier), func(p *ckdv1.ReportIssuedRequest) bool { return !recent[p.GetProcess()] })
	all = append(all, parts...)
	first, size := len(all), 0
	for first > 0 && size+proto.Size(all[first-1]) <= mostKept {
		first--
		size += proto.Size(all[first])
	}
	if len(all) == 0 {
		return nil
	}
	var data bytes.Buffer
	for _, p := range all[first:] {
		if _, err := protodelim.MarshalTo(&data, p); err != nil {
			return err
		}
	}
	return files.Replace(i.file, data.Bytes(), 0o600)
}

// keepIssued keeps what this process has issued so far, if that has changed. The caller holds mu.
func (k *keeper) keepIssued() {
	i := &k.issued
	if i.file == "" || len(k.server.Issued(i.position, 1)) == 0 && i.complete == (k.has != nil) {
		return
	}
	began := time.Now()
	progress, room := k.progress, k.room
	k.progress, k.room = newProgress(nil), partBytes
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

// nextEarlier returns the next part of an earlier process that the ledger may lack; nil for none.
func (k *keeper) nextEarlier() *part {
	for ; k.progress.earlier < len(k.issued.earlier); k.progress.earlier++ {
		kept := k.issued.earlier[k.progress.earlier]
		if had, now := kept.GetRemembered(), k.progress.ledger; had != nil && now != nil && sameCopy(had, now) && !older(now, had) {
			continue
		}
		told := proto.CloneOf(kept)
		told.Remembered = nil
		return &part{ReportIssuedRequest: told, position: k.progress.position, earlier: kept}
	}
	return nil
}

// leavesOut leaves out a part of an earlier process that the ledger never takes, and reports whether it did.
func (k *keeper) leavesOut(p *part, err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.ResourceExhausted, codes.PermissionDenied:
		if p.earlier != nil {
			k.progress.earlier++
			return true
		}
	}
	return false
}
