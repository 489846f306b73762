package evaluate

import (
	"bufio"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/internal/record"
)

// Names of the files of a recording.
const (
	passesName = "passes.npy"
	labelsName = "labels.npy"
)

// shape describes a synthetic recording.
type shape struct {
	inputs, passes, classes int
	seed                    uint64
}

// critical returns the critical classes, the upper half, as a flag.
func (s shape) critical() string {
	var names []string
	for k := s.classes / 2; k < s.classes; k++ {
		names = append(names, strconv.Itoa(k))
	}
	return strings.Join(names, ",")
}

// recording makes a synthetic recording of grades. Passes are the softmax of logits that lean to
// the true class, plus noise of the input and of the pass. The higher a class, the rarer it is.
func (s shape) recording() (passes, labels *record.Array) {
	random := rand.New(rand.NewPCG(s.seed, 0))
	passes = &record.Array{Shape: []int{s.passes, s.inputs, s.classes}}
	passes.Float32 = make([]float32, s.passes*s.inputs*s.classes)
	labels = &record.Array{Shape: []int{s.inputs}, Int64: make([]int64, s.inputs)}
	logits, row := make([]float64, s.classes), make([]float64, s.classes)
	for i := range s.inputs {
		label := min(int(random.ExpFloat64()*float64(s.classes)/3), s.classes-1)
		labels.Int64[i] = int64(label)
		for k := range logits {
			logits[k] = random.NormFloat64() - 4*math.Abs(float64(k-label))/float64(s.classes)
		}
		spread := 0.3 + random.Float64()
		for pass := range s.passes {
			sum := 0.0
			for k := range row {
				row[k] = math.Exp(logits[k] + spread*random.NormFloat64())
				sum += row[k]
			}
			to := passes.Float32[(pass*s.inputs+i)*s.classes:]
			for k := range row {
				to[k] = float32(row[k] / sum)
			}
		}
	}
	return passes, labels
}

// writeRecording writes both files to a folder.
func writeRecording(folder string, s shape) error {
	passes, labels := s.recording()
	if err := writeArray(filepath.Join(folder, passesName), passes); err != nil {
		return err
	}
	return writeArray(filepath.Join(folder, labelsName), labels)
}

func writeArray(path string, a *record.Array) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	if err := record.Write(w, a); err != nil {
		_ = f.Close() // it failed already
		return err
	}
	if err := w.Flush(); err != nil {
		_ = f.Close() // it failed already
		return err
	}
	return f.Close()
}
