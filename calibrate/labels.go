package calibrate

import (
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/eval"
)

// labels holds how much each input counts as critical and as missed: 0 or 1, or something between
// for soft labels.
type labels struct{ critical, missed []float64 }

// heldOut returns the sum over the critical inputs of a part, as often as a search holds them out.
func (l *labels) heldOut(p part) (sum float64) {
	for i, in := range p.of {
		if in {
			sum += repeats * l.critical[i]
		}
	}
	return sum
}

const (
	// modelled is the model's share in a soft label; the rest is the recording's. A share of 1
	// would trust the model to be right, and one of 0 would let single inputs choose the candidate.
	modelled = 0.5
	// ridge is the penalty on squared coefficients of standardised features.
	ridge = 0.3
	// newtonSteps is the largest number of steps of the fit. It ends earlier, mostly after 9, when
	// no coefficient moves by more than converged. Few misses far from all else need up to 40.
	newtonSteps = 60
	converged   = 1e-9
)

// soften returns soft labels for the inputs of a part that are predicted not critical, since only
// those can be missed: half the label, half the probability that the input is critical. A logistic
// regression on the logarithms of the scores, and of the skewness that gates read, gives that
// probability. It is fitted to the part alone.
func (s *sample) soften(p part) *labels {
	l := s.hard()
	var inputs []int
	missed := 0
	for i, in := range p.of {
		if in && !s.predictedCritical[i] {
			inputs = append(inputs, i)
			if s.missed[i] {
				missed++
			}
		}
	}
	if missed == 0 || missed == len(inputs) {
		return l
	}
	features := featuresOf(s.table, inputs)
	chance := logistic(features, inputs, s.missed)
	for j, i := range inputs {
		if math.IsNaN(chance[j]) { // no fit
			return s.hard()
		}
		soft := (1-modelled)*l.missed[i] + modelled*chance[j]
		l.missed[i], l.critical[i] = soft, soft
	}
	return l
}

// featuresOf returns a row for each input: standardised columns and a 1.
func featuresOf(t *eval.Table, inputs []int) [][]float64 {
	const (
		leastScore    = 1e-8 // is added under the logarithm
		leastSkewness = 1e-3
	)
	type source struct {
		values []float64
		least  float64
	}
	var sources []source
	for score := range decomp.PaperScores {
		if values := t.Scores[score]; values != nil {
			sources = append(sources, source{values, leastScore})
		}
	}
	if t.CriticalSkewness != nil {
		sources = append(sources, source{t.CriticalSkewness, leastSkewness})
	}
	rows := make([][]float64, len(inputs))
	flat := make([]float64, len(inputs)*(len(sources)+1))
	for j := range rows {
		rows[j] = flat[j*(len(sources)+1) : (j+1)*(len(sources)+1)]
		rows[j][len(sources)] = 1
	}
	for f, source := range sources {
		mean, square := 0.0, 0.0
		for j, i := range inputs {
			v := math.Log(source.values[i] + source.least)
			rows[j][f] = v
			mean += v / float64(len(inputs))
		}
		for _, row := range rows {
			square += (row[f] - mean) * (row[f] - mean) / float64(len(inputs))
		}
		scale := 0.0 // a constant column says nothing
		if square > 1e-20 {
			scale = 1 / math.Sqrt(square)
		}
		for _, row := range rows {
			row[f] = (row[f] - mean) * scale
		}
	}
	return rows
}

// logistic returns the fitted probability of each input: a ridge logistic regression of a label on
// its features, by Newton's method. The last feature, the constant, is not penalised.
func logistic(rows [][]float64, inputs []int, label []bool) []float64 {
	width := len(rows[0])
	coefficients := make([]float64, width)
	probability := func(row []float64) float64 {
		z := 0.0
		for f, x := range row {
			z += x * coefficients[f]
		}
		return 1 / (1 + math.Exp(-z))
	}
	for range newtonSteps {
		gradient := mat.NewVecDense(width, nil)
		hessian := mat.NewSymDense(width, nil)
		curvature := hessian.RawSymmetric().Data // upper triangle
		for j, row := range rows {
			q := probability(row)
			residual := -q
			if label[inputs[j]] {
				residual = 1 - q
			}
			w := max(q*(1-q), 1e-6)
			for f, x := range row {
				gradient.SetVec(f, gradient.AtVec(f)+x*residual)
				line, wx := curvature[f*width:(f+1)*width], w*x
				for g := f; g < width; g++ {
					line[g] += wx * row[g]
				}
			}
		}
		for f := range width {
			penalty := ridge
			if f == width-1 {
				penalty = 1e-6
			}
			gradient.SetVec(f, gradient.AtVec(f)-penalty*coefficients[f])
			hessian.SetSym(f, f, hessian.At(f, f)+penalty)
		}
		var cholesky mat.Cholesky
		step := mat.NewVecDense(width, nil)
		if !cholesky.Factorize(hessian) || cholesky.SolveVecTo(step, gradient) != nil {
			break
		}
		largest := 0.0
		for f := range coefficients {
			coefficients[f] += step.AtVec(f)
			largest = max(largest, math.Abs(step.AtVec(f)))
		}
		if largest <= converged {
			break
		}
	}
	chance := make([]float64, len(rows))
	for j, row := range rows {
		chance[j] = probability(row)
	}
	return chance
}
