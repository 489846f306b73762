package prevalence

import "math"

// An estimate takes Fewest critical inputs, and as many others. Of a share that may be more than Widest
// times as large as it may be, nothing is said: of such estimates those that are far too large would be
// seen most.
const (
	Fewest = 50
	Widest = 4
)

// Calibration says what priorities were fitted on.
type Calibration struct {
	// Prevalence is the share of critical inputs that priorities are for, in (0,1).
	Prevalence float64
	// Critical and Others count the labelled inputs.
	Critical, Others int
}

// Share is an estimated share of critical inputs with its 95% interval, all in (0,1).
type Share struct{ Low, Estimate, High float64 }

// Suggest estimates the share of critical inputs in the window. There is no estimate where it would
// rest on fewer than Fewest critical inputs or others, where the interval reaches 0 or 1 or is wider than
// Widest, or where the calibration has no critical inputs, or no others.
//
// The interval has the shares p that a score test at 5% does not refuse. With D = 1 - p + p w the score
// is the mean of (w-1)/D over the n live inputs, and its variance has two parts, of chance in these and
// of chance in the labelled inputs that w is known by:
//
//	Var((w-1)/D)/n + Var1(1/D)/Critical + Var0(w/D)/Others,
//
// where Var1 is over critical inputs and Var0 over others. The second part is that of a w estimated
// freely at each priority, which varies more than the few numbers of a fit.
func (w *Window) Suggest(c Calibration) (s Share, known bool) {
	if min(c.Critical, c.Others) <= 0 || !(c.Prevalence > 0 && c.Prevalence < 1) {
		return s, false
	}
	seen := w.sample(logit(c.Prevalence))
	low, high := -logOddsRange, logOddsRange
	p := root(low, high, seen.slope)
	if !(min(p, 1-p)*seen.inputs >= Fewest) {
		return s, false
	}
	seen.split(p)
	const normal = 1.959964 // 97.5% quantile
	above := func(p float64) float64 { return seen.score(p, c) - normal }
	below := func(p float64) float64 { return seen.score(p, c) + normal }
	if !(above(logistic(low)) > 0 && below(logistic(high)) < 0) {
		return s, false
	}
	s = Share{root(low, logit(p), above), p, root(logit(p), high, below)}
	return s, s.High <= Widest*s.Low
}

// logOddsRange is how far from 0 the log-odds of a share are looked for.
const logOddsRange = 20.0

func logit(p float64) float64 { return math.Log(p / (1 - p)) }

func logistic(z float64) float64 { return 1 / (1 + math.Exp(-z)) }

// root returns a share of log-odds from low to high where f changes from above 0 to below: the end where
// it does not.
func root(low, high float64, f func(p float64) float64) float64 {
	for range 32 {
		if middle := (low + high) / 2; f(logistic(middle)) > 0 {
			low = middle
		} else {
			high = middle
		}
	}
	return logistic((low + high) / 2)
}

// sample holds live inputs by cells.
type sample struct {
	inputs float64
	atoms  []atom
}

// An atom is n inputs that are w times as frequent among critical inputs as among others. It holds the
// shares critical of all critical inputs and others of all others.
type atom struct{ n, w, critical, others float64 }

// sample returns the inputs of a window, of priorities for a prevalence of the given log-odds.
func (w *Window) sample(prevalence float64) *sample {
	s := new(sample)
	for cell := range cells {
		n := 0.0
		for b := range w.blocks {
			n += float64(w.blocks[b][cell])
		}
		if n > 0 {
			s.atoms = append(s.atoms, atom{n: n, w: math.Exp(centres[cell] - prevalence)})
			s.inputs += n
		}
	}
	return s
}

// slope returns the slope of the log likelihood at a share.
func (s *sample) slope(p float64) (sum float64) {
	for i := range s.atoms {
		a := &s.atoms[i]
		sum += a.n * (a.w - 1) / (1 - p + p*a.w)
	}
	return sum
}

// split tells critical inputs from others, of which the first have share p.
func (s *sample) split(p float64) {
	var critical, others float64
	for i := range s.atoms {
		a := &s.atoms[i]
		d := 1 - p + p*a.w
		a.critical, a.others = a.n*a.w/d, a.n/d
		critical += a.critical
		others += a.others
	}
	for i := range s.atoms {
		s.atoms[i].critical /= critical
		s.atoms[i].others /= others
	}
}

// score returns the mean score at a share, in standard errors if that is the true one.
func (s *sample) score(p float64, c Calibration) float64 {
	var mean, ofCritical, ofOthers, critical, critical2, others, others2 float64
	for i := range s.atoms {
		a := &s.atoms[i]
		d := 1 / (1 - p + p*a.w)
		wd := a.w * d
		score := wd - d
		mean += a.n * score
		ofCritical += a.critical * score * score
		ofOthers += a.others * score * score
		critical += a.critical * d
		critical2 += a.critical * d * d
		others += a.others * wd
		others2 += a.others * wd * wd
	}
	variance := (p*ofCritical+(1-p)*ofOthers)/s.inputs +
		max(0, critical2-critical*critical)/float64(c.Critical) + max(0, others2-others*others)/float64(c.Others)
	return mean / s.inputs / math.Sqrt(variance)
}
