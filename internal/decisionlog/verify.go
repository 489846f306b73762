package decisionlog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"

	"github.com/ckd-project/ckd/policy"
)

// Report says what Verify found.
type Report struct {
	// Processes counts who wrote the files, and Records what they have. LeftOut and Lost are as close lines say.
	Processes              int
	Records, LeftOut, Lost uint64
	// Faults lists what is not as it was written, and Notes what cannot be known.
	Faults, Notes []Finding
}

// Finding is something that Verify found.
type Finding struct {
	File string
	Line int
	// What and Why say what is wrong, and by what that is known.
	What, Why string
}

// String returns file:line: what: why.
func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.What, f.Why) }

// Verify reads whole files, in any order, and says whether they are as they were written, and whether all are there.
// The error is of a file that cannot be read.
func Verify(paths []string) (*Report, error) { return verify(paths, Each) }

// verify is Verify for files that each reads.
func verify(paths []string, each func(path string, take func(*Line) error) error) (*Report, error) {
	v := &verifier{segments: map[string][]*segment{}}
	for _, path := range paths {
		v.file = fileState{}
		if err := each(path, v.line); err != nil {
			return nil, err
		}
		v.endFile()
	}
	v.join()
	order := func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(paths, a.File), slices.Index(paths, b.File)), cmp.Compare(a.Line, b.Line))
	}
	slices.SortStableFunc(v.report.Faults, order)
	slices.SortStableFunc(v.report.Notes, order)
	v.report.Processes = len(v.segments)
	return &v.report, nil
}

// verifier goes through files line by line, and then puts together what each process wrote.
type verifier struct {
	report   Report
	segments map[string][]*segment // by process
	file     fileState
}

// fileState is what is known of the file at hand.
type fileState struct {
	segment *segment
	bad     *Finding // the last line, if it is none of a log
}

// segment is what one process wrote to one file.
type segment struct {
	Start
	file  string
	line  int // of its start line
	spans []span
	hash  hash.Hash // since the last close line
	after string    // hash of that line
	stray bool      // it has no start line
}

// span is what stands before a close line and after the one before.
type span struct {
	first, last int // lines, the close line included
	records     uint64
	least, most uint64 // numbers
	close       *Close // nil at the end of a segment that lacks one
}

// line takes a line of the file at hand.
func (v *verifier) line(l *Line) error {
	f := &v.file
	if f.bad != nil {
		if l.Start != nil && (f.segment == nil || l.Start.ID != f.segment.ID) {
			f.bad.What, f.bad.Why = "a line was cut off", "the process that wrote it was killed, and another goes on"
			v.report.Notes = append(v.report.Notes, *f.bad)
		} else {
			v.report.Faults = append(v.report.Faults, *f.bad)
		}
		f.bad = nil
	}
	switch {
	case l.Torn():
		v.report.Notes = append(v.report.Notes, Finding{l.File, l.Number, "the last line has no end", "it is being written, or its process was killed"})
		return nil
	case l.Fault != "":
		f.bad = &Finding{l.File, l.Number, "not a line of a decision log", l.Fault}
	case l.Start != nil:
		v.start(l)
	case f.segment == nil:
		v.fault(l, "no start line stands before it", "the beginning of the file is missing")
		f.segment = newSegment(l, &Start{})
		f.segment.stray = true // says so once
	case l.Close != nil:
		v.close(l)
		return nil
	default:
		v.record(l)
	}
	if f.segment != nil {
		f.segment.hash.Write(l.Text)
		f.segment.span().last = l.Number
	}
	return nil
}

func (v *verifier) fault(l *Line, what, format string, args ...any) {
	v.report.Faults = append(v.report.Faults, Finding{l.File, l.Number, what, fmt.Sprintf(format, args...)})
}

// endFile takes the end of the file at hand.
func (v *verifier) endFile() {
	if v.file.bad != nil {
		v.report.Faults = append(v.report.Faults, *v.file.bad)
	}
}

func newSegment(l *Line, s *Start) *segment {
	g := &segment{Start: *s, file: l.File, line: l.Number, hash: sha256.New(), spans: []span{{first: l.Number}}}
	g.follow(s.After)
	return g
}

// follow begins the hash after a close line.
func (g *segment) follow(sum string) {
	g.after = sum
	g.hash.Reset()
	g.hash.Write([]byte(sum))
}

// span returns the span at the end.
func (g *segment) span() *span { return &g.spans[len(g.spans)-1] }

// end returns the last line of the segment.
func (g *segment) end() (line int) {
	for _, s := range g.spans {
		line = max(line, s.last)
	}
	return line
}

func (v *verifier) start(l *Line) {
	if l.Start.Why != startPolicies || v.file.segment == nil || v.file.segment.ID != l.Start.ID {
		v.file.segment = newSegment(l, l.Start)
		v.segments[l.Start.ID] = append(v.segments[l.Start.ID], v.file.segment)
	}
	for _, p := range l.Start.Policies {
		set, err := policy.Parse(policy.File{Name: "policy", Data: []byte(p.Text)})
		if err != nil {
			v.report.Notes = append(v.report.Notes, Finding{l.File, l.Number, "the policy of model " + p.Model + " cannot be checked", "this version of ckd does not read it"})
			continue
		}
		if read, ok := set.Get(p.Model); !ok || read.Hash != p.Hash {
			v.fault(l, "the policy of model "+p.Model+" is not the one of its hash", "another follows from its text")
		}
	}
}

func (v *verifier) record(l *Line) {
	v.report.Records++
	s := v.file.segment.span()
	if l.Record <= s.most {
		v.fault(l, fmt.Sprintf("number %d", l.Record), "it stands after number %d, expected ascending numbers", s.most)
	}
	if s.records == 0 {
		s.least = l.Record
	}
	s.records, s.most = s.records+1, max(s.most, l.Record)
}

func (v *verifier) close(l *Line) {
	g, c := v.file.segment, l.Close
	s := g.span()
	s.close, s.last = c, l.Number
	if g.stray {
		g.spans = append(g.spans, span{first: l.Number + 1})
		return // has a fault
	}
	g.hash.Write(l.Text[:max(0, bytes.LastIndex(l.Text, []byte(sumKey)))])
	sum := hex.EncodeToString(g.hash.Sum(nil))
	switch {
	case c.Process != g.ID:
		v.fault(l, "a close line of another process", "%s, expected %s, which wrote the start line", c.Process, g.ID)
	case c.After != g.after:
		v.fault(l, "a close line does not follow the one before", "that has %.12s, expected %.12s: lines between are missing", g.after, c.After)
	case c.SHA256 != sum:
		v.fault(l, fmt.Sprintf("lines %d to %d are not as they were written", s.first, s.last), "their SHA-256 is %.12s, expected %.12s", sum, c.SHA256)
	}
	if c.To+1-c.From != c.Written+c.LeftOut+c.Lost {
		v.fault(l, fmt.Sprintf("numbers %d to %d", c.From, c.To), "%d written, %d left out and %d lost do not add up to them", c.Written, c.LeftOut, c.Lost)
	}
	v.report.LeftOut, v.report.Lost = v.report.LeftOut+c.LeftOut, v.report.Lost+c.Lost
	g.follow(c.SHA256)
	g.spans = append(g.spans, span{first: l.Number + 1, most: s.most})
}

// join puts the segments of each process together, and says what is missing between them.
func (v *verifier) join() {
	for _, all := range v.segments {
		slices.SortStableFunc(all, func(a, b *segment) int {
			return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(len(a.spans), len(b.spans)), cmp.Compare(a.spans[0].least, b.spans[0].least))
		})
		v.joinProcess(all)
	}
}

func (v *verifier) joinProcess(all []*segment) {
	var (
		next   = all[0].From  // number that no close line has counted
		after  = all[0].After // hash of the last close line
		open   uint64         // records since then
		before *segment
		last   *Close
	)
	at := func(g *segment, line int, what, format string, args ...any) Finding {
		return Finding{g.file, line, what, fmt.Sprintf(format, args...)}
	}
	if next > 1 {
		v.report.Notes = append(v.report.Notes, at(all[0], all[0].line, fmt.Sprintf("begins at number %d", next), "earlier files were not given"))
	}
	for _, g := range all {
		switch {
		case g.From > next:
			v.report.Faults = append(v.report.Faults, at(g, g.line, fmt.Sprintf("numbers %d to %d are missing", next, g.From-1), "a file is missing after %s, or its end", before.file))
			open = 0
		case g.From < next:
			v.report.Faults = append(v.report.Faults, at(g, g.line, fmt.Sprintf("begins at number %d", g.From), "expected %d: is a file given twice?", next))
			return
		case g.After != after:
			v.report.Faults = append(v.report.Faults, at(g, g.line, "does not follow "+before.file, "the last close line there has %.12s, expected %.12s", after, g.After))
		}
		next, after, before = g.From, g.After, g
		for _, s := range g.spans {
			open += s.records
			c := s.close
			if c == nil {
				continue
			}
			if c.From != next {
				v.report.Faults = append(v.report.Faults, at(g, s.last, fmt.Sprintf("begins at number %d", c.From), "expected %d, where the close line before ended", next))
			}
			if s.records > 0 && (s.least < c.From || s.most > c.To) {
				v.report.Faults = append(v.report.Faults, at(g, s.last, fmt.Sprintf("numbers %d to %d stand before it", s.least, s.most), "expected %d to %d", c.From, c.To))
			}
			if open != c.Written {
				v.report.Faults = append(v.report.Faults, at(g, s.last, fmt.Sprintf("numbers %d to %d", c.From, c.To), "%d records were written, found %d", c.Written, open))
			}
			open, next, after, last = 0, c.To+1, c.SHA256, c
		}
	}
	switch end := before.end(); {
	case open > 0:
		v.report.Notes = append(v.report.Notes, at(before, end, fmt.Sprintf("%d records have no close line yet", open), "their process still writes, or was killed"))
	case last == nil || !last.End:
		v.report.Notes = append(v.report.Notes, at(before, end, "the end of process "+before.ID+" is missing", "it still runs, was killed, or later files were not given"))
	}
}
