package wire

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/mem"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// BenchmarkBlock decodes received buffers to float32 values: by this package into memory that it
// uses again, and by the generated decoder into a new slice.
func BenchmarkBlock(b *testing.B) {
	for _, shape := range []struct{ passes, inputs, classes int }{{30, 1, 4}, {30, 64, 4}, {30, 8, 100}, {30, 1, 1000}} {
		n := shape.passes * shape.inputs * shape.classes
		block := &ckdv1.Block{Group: 12345, Passes: uint32(shape.passes), Values: make([]float32, n)}
		for i := range shape.inputs {
			block.InputIds = append(block.InputIds, fmt.Sprintf("input-%06d", i))
		}
		message := &ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: block}}
		var data mem.BufferSlice
		for whole := encoded(message); len(whole) > 0; { // splits the message like HTTP/2 frames
			frame := min(len(whole), 16384)
			data, whole = append(data, mem.SliceBuffer(whole[:frame])), whole[frame:]
		}
		name := fmt.Sprintf("S%dK%dN%d", shape.passes, shape.classes, shape.inputs)
		b.Run(name+"/hand", func(b *testing.B) {
			var in Incoming
			var r StreamRequest
			dst := make([]float32, n)
			b.SetBytes(int64(4 * n))
			b.ReportAllocs()
			for b.Loop() {
				if Codec.Unmarshal(Codec{}, data, &in) != nil || r.Decode(&in) != nil || r.Block.Values.Len() != n {
					b.Fatal("not decoded")
				}
				r.Block.Values.Next(dst)
				in.Free()
			}
		})
		b.Run(name+"/generated", func(b *testing.B) {
			b.SetBytes(int64(4 * n))
			b.ReportAllocs()
			for b.Loop() {
				var m ckdv1.DecomposeStreamRequest
				if standard.Unmarshal(data, &m) != nil {
					b.Fatal("not decoded")
				}
			}
		})
	}
}

// BenchmarkReply builds, hands over and frees a reply of 64 results. Figures are per result.
func BenchmarkReply(b *testing.B) {
	const results, classes = 64, 10
	id, vector := []byte("input-000001"), make([]float64, classes)
	for i := range vector {
		vector[i] = 1 / float64(i+1)
	}
	decision := &Decomposition{
		Action: ckdv1.Action_ACTION_RETAIN, Score: ckdv1.Score_SCORE_C_CRIT_MAX, Value: 0.01, Threshold: 0.02, HasThreshold: true,
		Gate: ckdv1.GateOutcome_GATE_OUTCOME_PRIMARY, DecidingClass: -1, Reason: ckdv1.DecisionReason_DECISION_REASON_UNDER_THRESHOLD,
		Predicted: 3, Passes: 30, Dominant: -1,
	}
	vectors := *decision
	vectors.Vectors, vectors.C, vectors.Skewness, vectors.Mean = true, vector, vector, vector
	vectors.MI, vectors.Entropy, vectors.SumC, vectors.Dominant = 1, 2, 3, 4
	for name, d := range map[string]*Decomposition{"decision": decision, "vectors": &vectors} {
		b.Run(name+"/hand", func(b *testing.B) {
			o := NewOutgoing(Stream)
			b.ReportAllocs()
			for b.Loop() {
				o.Begin(Stream)
				for row := range uint32(results) {
					o.Result(id, 12345, row, 0, d)
				}
				data, _ := Codec{}.Marshal(o)
				data.Free()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/results, "ns/result")
		})
		b.Run(name+"/generated", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m := &ckdv1.DecomposeStreamResponse{Results: make([]*ckdv1.Result, results)}
				for row := range m.Results {
					m.Results[row] = generated(string(id), 12345, uint32(row), d)
				}
				data, _ := standard.Marshal(m)
				data.Free()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/results, "ns/result")
		})
	}
}

func generated(id string, group uint64, row uint32, d *Decomposition) *ckdv1.Result {
	m := &ckdv1.Decomposition{
		Decision:  &ckdv1.Decision{Action: d.Action, Score: d.Score, Value: d.Value, Threshold: &d.Threshold, Gate: d.Gate, Reason: d.Reason},
		Predicted: d.Predicted, Passes: d.Passes, C: d.C, Skewness: d.Skewness, Mean: d.Mean, Mi: d.MI, Entropy: d.Entropy, SumC: d.SumC,
	}
	return &ckdv1.Result{InputId: id, Group: group, Row: row, Outcome: &ckdv1.Result_Decomposition{Decomposition: m}}
}
