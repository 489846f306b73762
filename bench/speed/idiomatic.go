package main

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// The kinds of idiomatic servers.
const (
	kindIdiomatic   = "idiomatic"         // the daemon as one would first write it
	kindIntercepted = "idiomatic-in-full" // the same, with metrics of what it decides, and with ckd's interceptors
)

// newIdiomaticServer returns a server of a kind.
func newIdiomaticServer(kind string) (*grpc.Server, error) {
	var options []grpc.ServerOption
	if kind == kindIntercepted {
		var err error
		if options, err = commonInterceptors(); err != nil {
			return nil, err
		}
	}
	s := grpc.NewServer(options...)
	ckdv1.RegisterUncertaintyServiceServer(s, newIdiomatic(kind == kindIntercepted))
	return s, nil
}

// idiomatic serves as a daemon would that is written in the usual way: generated messages, math.Log,
// one input at a time, one Observe for each value, its series found by labels. It accepts what the
// benchmark sends, and no more.
type idiomatic struct {
	ckdv1.UnimplementedUncertaintyServiceServer
	models      map[string]*idiomaticModel
	c, skewness *prometheus.HistogramVec // nil for no metrics
	inputs      *prometheus.CounterVec
}

// idiomaticModel holds what the inputs of a model share.
type idiomaticModel struct {
	daemon         *idiomatic
	policy         *ckdv1.PolicyRef
	classes        []string
	critical, safe []int
}

func newIdiomatic(observing bool) *idiomatic {
	d := &idiomatic{models: map[string]*idiomaticModel{}}
	for _, classes := range modelClasses {
		m := &idiomaticModel{daemon: d, classes: classNames(classes)}
		m.policy = &ckdv1.PolicyRef{Model: modelName(classes), Version: policyVersion, Hash: strings.Repeat("0", 64)}
		m.critical, m.safe = shape{classes: classes}.sets()
		d.models[m.policy.GetModel()] = m
	}
	if observing {
		histogram := func(name string, buckets []float64) *prometheus.HistogramVec {
			return prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Name: name, Buckets: buckets, NativeHistogramBucketFactor: 1.1, // both forms, as ckd
			}, []string{"model", "class"})
		}
		d.c = histogram("c", prometheus.ExponentialBuckets(1e-6, 4, 12))
		d.skewness = histogram("skewness", prometheus.LinearBuckets(0.1, 0.1, 12))
		d.inputs = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "inputs_total"}, []string{"model", "action"})
		prometheus.NewRegistry().MustRegister(d.c, d.skewness, d.inputs)
	}
	return d
}

func (d *idiomatic) model(name string) (*idiomaticModel, error) {
	m, known := d.models[name]
	if !known {
		return nil, status.Errorf(codes.NotFound, "no model %q", name)
	}
	return m, nil
}

func unlessEnded(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Decompose answers a tensor laid out [passes][inputs][classes].
func (d *idiomatic) Decompose(_ context.Context, r *ckdv1.DecomposeRequest) (*ckdv1.DecomposeResponse, error) {
	m, err := d.model(r.GetModel())
	if err != nil {
		return nil, err
	}
	inputs, classes := int(r.GetInputs()), len(m.classes)
	if len(r.GetValues()) != int(r.GetPasses())*inputs*classes {
		return nil, status.Error(codes.InvalidArgument, "the number of values is not passes x inputs x classes")
	}
	response := &ckdv1.DecomposeResponse{Policy: m.policy}
	for i := range inputs {
		var rows [][]float32
		for s := range int(r.GetPasses()) {
			at := (s*inputs + i) * classes
			rows = append(rows, r.GetValues()[at:at+classes])
		}
		result, err := m.decompose(rows)
		if err != nil {
			return nil, err
		}
		response.Results = append(response.Results, &ckdv1.Result{
			InputId: r.GetInputIds()[i], Row: uint32(i), Outcome: &ckdv1.Result_Decomposition{Decomposition: result},
		})
	}
	return response, nil
}

// idiomaticGroup collects the passes of a group's inputs, by input and pass.
type idiomaticGroup struct {
	ids  []string
	rows [][][]float32
}

// DecomposeStream answers each group when its passes are complete.
func (d *idiomatic) DecomposeStream(stream ckdv1.UncertaintyService_DecomposeStreamServer) error {
	first, err := stream.Recv()
	if err != nil {
		return unlessEnded(err)
	}
	header := first.GetHeader()
	m, err := d.model(header.GetModel())
	if err != nil {
		return err
	}
	welcome := &ckdv1.StreamInfo{ExpectedPasses: header.GetPasses()}
	if err := stream.Send(&ckdv1.DecomposeStreamResponse{Info: welcome}); err != nil {
		return err
	}
	groups := map[uint64]*idiomaticGroup{}
	for {
		message, err := stream.Recv()
		if err != nil {
			return unlessEnded(err)
		}
		b := message.GetBlock()
		g := groups[b.GetGroup()]
		if g == nil {
			g = &idiomaticGroup{b.GetInputIds(), make([][][]float32, len(b.GetInputIds()))}
			groups[b.GetGroup()] = g
		}
		inputs, passes, classes := len(g.ids), max(1, int(b.GetPasses())), len(m.classes)
		if len(b.GetValues()) != passes*inputs*classes || inputs == 0 {
			return status.Error(codes.InvalidArgument, "the number of values is not passes x inputs x classes")
		}
		for s := range passes {
			for i := range inputs {
				at := (s*inputs + i) * classes
				g.rows[i] = append(g.rows[i], b.GetValues()[at:at+classes])
			}
		}
		if len(g.rows[0]) < int(header.GetPasses()) {
			continue
		}
		delete(groups, b.GetGroup())
		response := &ckdv1.DecomposeStreamResponse{Policies: []*ckdv1.PolicyRef{m.policy}}
		for i, rows := range g.rows {
			result, err := m.decompose(rows)
			if err != nil {
				return err
			}
			response.Results = append(response.Results, &ckdv1.Result{
				InputId: g.ids[i], Group: b.GetGroup(), Row: uint32(i),
				Outcome: &ckdv1.Result_Decomposition{Decomposition: result},
			})
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// decompose decides one input, given rows [passes][classes].
func (m *idiomaticModel) decompose(rows [][]float32) (*ckdv1.Decomposition, error) {
	passes, classes := float64(len(rows)), len(m.classes)
	mean, variance, third := make([]float64, classes), make([]float64, classes), make([]float64, classes)
	for _, row := range rows {
		sum := 0.0
		for k, p := range row {
			v := float64(p)
			if math.IsNaN(v) || v < 0 || v > 1 {
				return nil, status.Error(codes.InvalidArgument, "a value is not in [0,1]")
			}
			sum += v
			mean[k] += v / passes
		}
		if math.Abs(sum-1) > 1e-3 {
			return nil, status.Error(codes.InvalidArgument, "a row does not sum to 1")
		}
	}
	entropy, expected := 0.0, 0.0
	for _, row := range rows {
		for k, p := range row {
			v := float64(p)
			d := v - mean[k]
			variance[k] += d * d / (passes - 1)
			third[k] += d * d * d / passes
			if v > 0 {
				expected -= v * math.Log(v) / passes
			}
		}
	}
	c, skewness := make([]float64, classes), make([]float64, classes)
	predicted := 0
	for k, mu := range mean {
		if mu > mean[predicted] {
			predicted = k
		}
		if mu > 0 {
			c[k] = 0.5 * variance[k] / (mu + 1e-10)
			entropy -= mu * math.Log(mu)
		}
		if mu*variance[k] > 0 {
			skewness[k] = math.Abs(third[k]) / (3 * mu * variance[k])
		}
	}
	cbec := 0.0
	for _, j := range m.safe {
		for _, k := range m.critical {
			cov := 0.0
			for _, row := range rows {
				cov += (float64(row[j]) - mean[j]) * (float64(row[k]) - mean[k])
			}
			cov /= passes - 1
			cbec += math.Max(0, -cov) / (2 * math.Sqrt((mean[j]+1e-10)*(mean[k]+1e-10)))
		}
	}
	_ = entropy - expected // the mutual information, which decisions alone do not tell

	var unreliable []uint32
	for k, s := range skewness {
		if s > reliability {
			unreliable = append(unreliable, uint32(k))
		}
	}
	decision := m.decide(c, skewness, cbec)
	if d := m.daemon; d.c != nil {
		for k, class := range m.classes {
			d.c.WithLabelValues(m.policy.GetModel(), class).Observe(c[k])
			d.skewness.WithLabelValues(m.policy.GetModel(), class).Observe(skewness[k])
		}
		d.inputs.WithLabelValues(m.policy.GetModel(), decision.GetAction().String()).Inc()
	}
	return &ckdv1.Decomposition{
		Decision: decision, Unreliable: unreliable, Predicted: uint32(predicted), Passes: uint32(len(rows)),
	}, nil
}

// decide compares c_crit_max with its threshold, or cbec if a critical class is unreliable.
func (m *idiomaticModel) decide(c, skewness []float64, cbec float64) *ckdv1.Decision {
	deciding, falls := m.critical[0], false
	for _, k := range m.critical {
		if c[k] > c[deciding] {
			deciding = k
		}
		falls = falls || skewness[k] > reliability
	}
	threshold := primaryThreshold
	d := &ckdv1.Decision{
		Score: ckdv1.Score_SCORE_C_CRIT_MAX, Value: c[deciding], Gate: ckdv1.GateOutcome_GATE_OUTCOME_PRIMARY,
		Action: ckdv1.Action_ACTION_RETAIN, Reason: ckdv1.DecisionReason_DECISION_REASON_UNDER_THRESHOLD,
	}
	if falls {
		threshold = fallbackThreshold
		d.Score, d.Value, d.Gate = ckdv1.Score_SCORE_CBEC, cbec, ckdv1.GateOutcome_GATE_OUTCOME_FALLBACK
	}
	d.Threshold = &threshold
	if d.Value > threshold {
		class := uint32(deciding)
		d.Action, d.Reason = ckdv1.Action_ACTION_DEFER, ckdv1.DecisionReason_DECISION_REASON_ABOVE_THRESHOLD
		d.DecidingClass = &class
	}
	return d
}
