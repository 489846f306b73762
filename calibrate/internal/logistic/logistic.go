package logistic

import "math"

// Regression is a penalised logistic regression of outcomes on columns:
//
//	min_b  sum_i [log(1+exp(z_i)) - y_i z_i] + sum_j Penalty_j (b_j - Centre_j)^2 / 2,  z_i = sum_j b_j x_ij
//
// The result depends on its fields alone, not on the machine or the number of processors.
type Regression struct {
	X               []float64 // the rows, one after another, each as wide as Penalty
	Y               []bool    // by row
	Penalty, Centre []float64 // by column
	Constant        int       // the column that is 1 in every row
}

// New returns a regression without rows, whose penalties and centres are 0.
func New(columns, constant int) *Regression {
	return &Regression{Penalty: make([]float64, columns), Centre: make([]float64, columns), Constant: constant}
}

// Standardise subtracts from each column but the constant one its mean and divides it by its standard
// deviation, in place. It returns both. The deviation of a column that does not vary is 0, and so
// becomes the column.
func (r *Regression) Standardise() (mean, deviation []float64) {
	n, rows := len(r.Penalty), max(len(r.Y), 1)
	mean, deviation = make([]float64, n), make([]float64, n)
	for i, v := range r.X {
		mean[i%n] += v / float64(rows)
	}
	for i, v := range r.X {
		deviation[i%n] += (v - mean[i%n]) * (v - mean[i%n]) / float64(rows)
	}
	for j := range deviation {
		if deviation[j] = math.Sqrt(deviation[j]); deviation[j] < 1e-9 {
			deviation[j] = 0
		}
	}
	for i, v := range r.X {
		switch j := i % n; {
		case j == r.Constant:
		case deviation[j] > 0:
			r.X[i] = (v - mean[j]) / deviation[j]
		default:
			r.X[i] = 0
		}
	}
	return mean, deviation
}

// Fit moves weights to the minimum by Newton's method. It ends after a step that moves no weight by
// as much as the tolerance. No step moves a weight by more than 5, and a step after which the loss is
// larger is halved, so that outcomes which the columns separate do no harm.
func (r *Regression) Fit(b []float64, tolerance float64) {
	const most = 100 // steps; ten are usual
	loss := r.loss(b)
	for range most {
		g, h := r.derivatives(b)
		solve(h, g)
		widest := 0.0
		for _, v := range g {
			widest = max(widest, math.Abs(v))
		}
		was, scale := loss, min(1, 5/max(widest, 1e-300))
		for {
			for j, v := range g {
				b[j] -= v * scale
			}
			if loss = r.loss(b); loss <= was+1e-9*(1+was) || scale < 1e-10 {
				break
			}
			for j, v := range g {
				b[j] += v * scale
			}
			scale /= 2
		}
		if widest < tolerance {
			return
		}
	}
}

func (r *Regression) loss(b []float64) (sum float64) {
	for i, y := range r.Y {
		z := r.Z(b, i)
		sum += max(z, 0) + math.Log1p(math.Exp(-math.Abs(z)))
		if y {
			sum -= z
		}
	}
	for j, v := range b {
		sum += r.Penalty[j] * (v - r.Centre[j]) * (v - r.Centre[j]) / 2
	}
	return sum
}

// Z returns the log-odds of a row.
func (r *Regression) Z(b []float64, row int) (z float64) {
	for j, v := range r.X[row*len(b):][:len(b)] {
		z += b[j] * v
	}
	return z
}

// derivatives returns the gradient of the loss, and the lower half of its Hessian, row by row.
func (r *Regression) derivatives(b []float64) (g, h []float64) {
	n := len(b)
	g, h = make([]float64, n), make([]float64, n*n)
	for i, y := range r.Y {
		p := 1 / (1 + math.Exp(-min(max(r.Z(b, i), -30), 30)))
		e := p
		if y {
			e--
		}
		w := max(p*(1-p), 1e-6)
		x := r.X[i*n:][:n]
		for j, v := range x {
			g[j] += e * v
			v *= w
			to := h[j*n:][:j+1]
			for l := range to {
				to[l] += v * x[l]
			}
		}
	}
	for j := range n {
		g[j] += r.Penalty[j] * (b[j] - r.Centre[j])
		h[j*n+j] += r.Penalty[j]
	}
	return g, h
}

// solve solves h x = g in place (Cholesky). h is positive definite and given by its lower half, row
// by row.
func solve(h, g []float64) {
	n := len(g)
	for j := range n {
		for i := j; i < n; i++ {
			sum := h[i*n+j]
			for k := range j {
				sum -= h[i*n+k] * h[j*n+k]
			}
			if i == j {
				h[j*n+j] = math.Sqrt(max(sum, 1e-12))
			} else {
				h[i*n+j] = sum / h[j*n+j]
			}
		}
	}
	for i := range n {
		for k := range i {
			g[i] -= h[i*n+k] * g[k]
		}
		g[i] /= h[i*n+i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			g[i] -= h[k*n+i] * g[k]
		}
		g[i] /= h[i*n+i]
	}
}
