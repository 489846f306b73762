package spec

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// chance reports true with a probability.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// usual are what inputs of 3 classes have for passes: calm ones, sure ones, of which one is to be clamped,
// and such as disagree.
var usual = [][]float32{
	{0.9, 0.05, 0.05}, {0.91, 0.05, 0.04}, {0.88, 0.07, 0.05}, {0.86, 0.04, 0.1}, {0.92, 0.04, 0.04}, {0.89, 0.06, 0.05}, {1, 0, 0}, {1.0004, -0.0003, 0},
	{0.5, 0.25, 0.25}, {0.52, 0.48, 0}, {0.47, 0.53, 0}, {0.1, 0.1, 0.8}, {0.05, 0.9, 0.05}, {0, 0, 1},
}

// row returns a row of a policy.
func (p *Policy) row(r *rand.Rand) []float32 {
	row := make([]float32, len(p.Classes))
	copy(row, pick(r, usual...))
	if len(row) == 2 {
		row[1] = 1 - row[0]
	}
	probabilities := chance(r, 0.2) // where they are not expected
	for i := range row {
		switch p.Kind {
		case policy.Logits:
			if probabilities {
				continue
			}
			row[i] = 4 * (row[i] - 0.5)
		case policy.Dirichlet:
			row[i] = 0.1 + 10*row[i]
		}
	}
	return row
}

// spoil puts one bad value into a row.
func (p *Policy) spoil(r *rand.Rand, row []float32) {
	at := r.IntN(len(row))
	switch bad := r.IntN(5); {
	case bad == 0 || p.Kind == policy.Logits:
		row[at] = pick(r, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)))
	case bad == 1:
		row[at] = -0.25
	case bad == 2:
		row[at] = 1.5
	case bad == 3:
		row[at] = 0
	default:
		row[at] += 0.1
	}
}

// fill puts the values of some passes and rows into a block, now and then wrong ones.
func (p *Policy) fill(r *rand.Rand, b *ckdv1.Block, passes, rows int) {
	var v []float32
	differs := pick(r, 0, 0.1, 1) // how often a row is another than the first
	first := p.row(r)
	for range passes * rows {
		row := slices.Clone(first)
		if chance(r, differs) {
			row = p.row(r)
		}
		if chance(r, 0.01) {
			p.spoil(r, row)
		}
		v = append(v, row...)
	}
	if b.Passes = uint32(passes); passes == 1 && len(v) > 0 && chance(r, 0.5) {
		b.Passes = 0
	}
	if chance(r, 0.02) {
		v = v[:max(len(v)-1-r.IntN(len(p.Classes)), 0)]
	}
	if chance(r, 0.5) {
		b.Values = v
	} else {
		b.ValuesLe = littleEndian(v)
	}
	switch {
	case chance(r, 0.01):
		b.Values, b.ValuesLe = v, littleEndian(v)
	case chance(r, 0.005) && len(b.ValuesLe) > 0:
		b.ValuesLe = b.ValuesLe[:len(b.ValuesLe)-1]
	}
}

func littleEndian(v []float32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// id returns an id, now and then an empty one, one that is in use, or one that is too long.
func (s *Server) id(r *rand.Rand) string {
	switch {
	case chance(r, 0.2):
		return ""
	case chance(r, 0.02):
		return strings.Repeat("x", s.Limits.IDBytes+pick(r, 1, 500))
	}
	return fmt.Sprintf("i%d", r.IntN(60))
}

func (s *Server) ids(r *rand.Rand, n int) (ids []string) {
	for range n {
		ids = append(ids, s.id(r))
	}
	return ids
}

func (s *Server) contexts(r *rand.Rand, n int) (all []*ckdv1.InputContext) {
	for range n {
		x := &ckdv1.InputContext{Group: fmt.Sprint("patient-", r.IntN(5)), Slices: map[string]string{pick(r, "site", "scanner"): pick(r, "north", "south", "elsewhere")}}
		switch r.IntN(40) {
		case 0, 1:
			x.Group = strings.Repeat("p", s.Limits.IDBytes+1)
		case 2, 3:
			for i := range policy.MaxSlices {
				x.Slices[fmt.Sprint(i)] = ""
			}
		}
		all = append(all, x)
	}
	return all
}

// Header returns a header for a random model, now and then a wrong one.
func (s *Server) Header(r *rand.Rand) *ckdv1.StreamHeader {
	if chance(r, 0.02) {
		return nil
	}
	model := "unknown"
	if models := s.Models(); len(models) > 0 && !chance(r, 0.03) {
		model = pick(r, models...)
		if s.policies["ctg"] != nil && chance(r, 0.5) {
			model = "ctg"
		}
	}
	h := &ckdv1.StreamHeader{
		Model: model, Detail: pick(r, ckdv1.Detail_DETAIL_UNSPECIFIED, ckdv1.Detail_DETAIL_DECISION, ckdv1.Detail_DETAIL_VECTORS, ckdv1.Detail_DETAIL_FULL),
		AcceptSettled: chance(r, 0.5),
	}
	if chance(r, 0.3) {
		h.Posterior = pick(r, "mc-dropout", "ensemble")
	}
	if s.Keys != nil || chance(r, 0.03) {
		h.Receipts, h.ModelVersion = pick(r, ckdv1.Receipts_RECEIPTS_UNSPECIFIED, ckdv1.Receipts_RECEIPTS_REVIEWED, ckdv1.Receipts_RECEIPTS_ALL), pick(r, "", "v7")
	}
	if p := s.policies[model]; p != nil && chance(r, 0.3) {
		h.Classes = slices.Clone(p.Classes)
		if p.Kind != policy.Dirichlet {
			h.Passes = uint32(p.FewestPasses + r.IntN(4))
		}
	}
	switch r.IntN(100) {
	case 0:
		h.Classes = []string{"cat", "dog"}
	case 1:
		h.Passes = uint32(s.Limits.Passes + 1)
	case 2:
		h.Passes = 1
	case 3:
		h.Posterior = "no name"
	case 4:
		h.Detail = 99
	case 5:
		h.Kind = ckdv1.Kind_KIND_DIRICHLET
	}
	return h
}

// Message returns a random message for the stream in its present state: mostly what a client may
// send, now and then what none should.
func (s *Stream) Message(r *rand.Rand) *ckdv1.DecomposeStreamRequest {
	open := slices.Sorted(maps.Keys(s.groups))
	switch r.IntN(100) {
	case 0:
		return &ckdv1.DecomposeStreamRequest{}
	case 1:
		return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: s.header}}
	case 2:
		return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{Model: "another"}}}
	}
	b := &ckdv1.Block{}
	switch {
	case s.calm && chance(r, 0.9):
		if len(open) == 0 || len(open) < 2 && chance(r, 0.2) {
			b.Group = s.top + 1
			b.InputIds = s.server.ids(r, 1+r.IntN(4))
			s.bound.fill(r, b, 1, len(b.InputIds))
		} else {
			b.Group = pick(r, open...)
			s.bound.fill(r, b, 1+r.IntN(2), len(s.groups[b.Group].rows))
		}
	case len(open) > 0 && chance(r, 0.65):
		s.goOn(r, b, s.groups[pick(r, open...)])
	case s.any && chance(r, 0.1): // late
		b.Group = s.top - min(s.top, uint64(r.IntN(3)))
		s.bound.fill(r, b, 1, 1+r.IntN(3))
	case chance(r, 0.02): // never opened
		b.Group = s.top + 1 + uint64(r.IntN(3))
		s.bound.fill(r, b, 1, 1)
	default:
		s.opening(r, b, open)
	}
	return &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}}
}

// goOn makes a block for a group that is open.
func (s *Stream) goOn(r *rand.Rand, b *ckdv1.Block, g *group) {
	b.Group, b.Final = g.number, chance(r, 0.1)
	n := len(g.rows)
	if chance(r, 0.5) { // some rows
		n = 1 + r.IntN(n)
		for _, row := range r.Perm(len(g.rows))[:n] {
			b.Rows = append(b.Rows, uint32(row))
		}
		if chance(r, 0.7) {
			slices.Sort(b.Rows)
		}
		switch r.IntN(100) {
		case 0, 1, 2:
			b.Rows[r.IntN(n)] = uint32(len(g.rows) + r.IntN(2))
		case 3, 4, 5:
			b.Rows[r.IntN(n)] = b.Rows[r.IntN(n)]
		case 6:
			for range len(g.rows) {
				b.Rows, n = append(b.Rows, 0), n+1
			}
		}
	}
	passes := 1
	if chance(r, 0.3) {
		passes = r.IntN(4)
	}
	s.bound.fill(r, b, passes, n)
	if chance(r, 0.1) { // passes that were sent already
		b.Passes, b.Values, b.ValuesLe, b.Final = 0, nil, nil, true
	}
}

// opening makes a block that opens a group.
func (s *Stream) opening(r *rand.Rand, b *ckdv1.Block, open []uint64) {
	if b.Group = s.top; s.any {
		b.Group += 1 + uint64(r.IntN(2))
	}
	switch {
	case len(open) > 0 && chance(r, 0.03):
		b.Group = pick(r, open...)
	case chance(r, 0.05):
		b.Group = uint64(r.IntN(int(s.top) + 1))
	}
	n := 1 + r.IntN(4)
	if chance(r, 0.02) {
		n = s.server.Limits.OpenInputs + r.IntN(3)
	}
	b.InputIds, b.Final = s.server.ids(r, n), chance(r, 0.1)
	if chance(r, 0.3) {
		b.Contexts = s.server.contexts(r, n)
		if chance(r, 0.05) {
			b.Contexts = b.Contexts[1:]
		}
	}
	passes := 1
	if chance(r, 0.3) {
		passes = r.IntN(s.server.Limits.Passes + 2)
	}
	if chance(r, 0.1) {
		b.Rows, n = []uint32{uint32(r.IntN(n))}, 1
	}
	if chance(r, 0.02) {
		b.Rows, n = []uint32{90, 91}, 2
	}
	s.bound.fill(r, b, passes, n)
}

// Call returns a random unary request.
func (s *Server) Call(r *rand.Rand) *ckdv1.DecomposeRequest {
	h := s.Header(r)
	p := s.policies[h.GetModel()]
	if p == nil {
		return &ckdv1.DecomposeRequest{Model: "unknown", Inputs: uint32(r.IntN(5))}
	}
	n, passes := r.IntN(5), 1+r.IntN(s.Limits.Passes)
	if p.Kind == policy.Dirichlet && !chance(r, 0.1) {
		passes = 1
	}
	b := &ckdv1.Block{}
	p.fill(r, b, passes, n)
	c := &ckdv1.DecomposeRequest{
		Model: p.Name, Classes: h.Classes, Kind: h.Kind, Detail: h.Detail, Posterior: h.Posterior, Receipts: h.Receipts, ModelVersion: h.ModelVersion,
		Inputs: uint32(n), Passes: uint32(passes), Values: b.Values, ValuesLe: b.ValuesLe, Layout: pick(r, ckdv1.Layout_LAYOUT_SNK, ckdv1.Layout_LAYOUT_NSK),
	}
	if chance(r, 0.5) {
		c.InputIds = s.ids(r, n)
	}
	if chance(r, 0.3) {
		c.Contexts = s.contexts(r, n+r.IntN(20)/19)
	}
	switch r.IntN(32) {
	case 0:
		c.InputIds = s.ids(r, n+1)
	case 1:
		c.Layout = ckdv1.Layout_LAYOUT_UNSPECIFIED
	case 2:
		c.Inputs = uint32(s.Limits.InputsPerRequest + 1)
	}
	return c
}
