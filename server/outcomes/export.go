package outcomes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ckd-project/ckd/internal/auth"
	"github.com/ckd-project/ckd/internal/outcome/ledger"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// ExportOutcomes implements the RPC.
func (s *Service) ExportOutcomes(r *ckdv1.ExportOutcomesRequest, stream grpc.ServerStreamingServer[ckdv1.ExportOutcomesResponse]) error {
	ctx := stream.Context()
	if err := auth.Require(ctx, (*auth.Identity).MayReportOutcomes, "export outcomes"); err != nil {
		return err
	}
	select {
	case s.exports <- struct{}{}:
		defer func() { <-s.exports }()
	default:
		return fail(codes.ResourceExhausted, ckdv1.ErrorReason_ERROR_REASON_OVERLOADED, "", fmt.Sprintf("%d exports are under way, expected one to end first", mostExports)).Err()
	}
	out := &lines{send: func(lines []string) error { return stream.Send(&ckdv1.ExportOutcomesResponse{Lines: lines}) }}
	who := auth.FromContext(ctx)
	format := ledger.JSONLines
	if r.GetFormat() == ckdv1.ExportFormat_EXPORT_FORMAT_CSV {
		format = ledger.CSV
	}
	filter := ledger.Filter{From: timeOf(r.GetFrom()), Before: timeOf(r.GetTo()),
		Model: func(name string) bool { return who.MayUse(name) && (r.GetModel() == "" || r.GetModel() == name) }}
	var err error
	switch {
	case r.GetTrail():
		err = s.exportTrail(out, who, r)
	case r.GetIssued():
		err = s.Ledger.ExportIssued(out, format, filter)
	case r.GetOverdue():
		err = s.Ledger.ExportOverdue(out, format, filter)
	default:
		err = s.Ledger.Export(out, format, filter)
	}
	if err == nil {
		err = out.flush()
	}
	switch {
	case err == nil, ctx.Err() != nil, out.broken != nil:
		return err
	}
	return s.failed("export outcomes", err)
}

// exportTrail exports what happened to the models that the identity may use, and to the ledger.
func (s *Service) exportTrail(out io.Writer, who *auth.Identity, r *ckdv1.ExportOutcomesRequest) error {
	events, err := s.Ledger.Trail()
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	for _, e := range events {
		if e.Model != "" && !who.MayUse(e.Model) || r.GetModel() != "" && r.GetModel() != e.Model {
			continue
		}
		if err := encoder.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

// timeOf returns a time, the zero one for none.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// chunkBytes is about the size of one message of an export.
const chunkBytes = 64 << 10

// lines cuts the written bytes into lines, and sends many at a time.
type lines struct {
	send   func([]string) error
	buffer []byte
	broken error
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	l.buffer = append(l.buffer, p...)
	if len(l.buffer) < chunkBytes {
		return n, nil
	}
	end := bytes.LastIndexByte(l.buffer, '\n')
	if end < 0 {
		return n, nil
	}
	if err := l.sendLines(l.buffer[:end]); err != nil {
		return 0, err
	}
	l.buffer = append(l.buffer[:0], l.buffer[end+1:]...)
	return n, nil
}

// flush sends the remaining lines.
func (l *lines) flush() error {
	if len(l.buffer) == 0 {
		return nil
	}
	return l.sendLines(bytes.TrimSuffix(l.buffer, []byte("\n")))
}

func (l *lines) sendLines(text []byte) error {
	var all []string
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		all = append(all, string(line))
	}
	l.broken = l.send(all)
	return l.broken
}
