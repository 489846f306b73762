package evidence

import "math"

// The grid of a Sequence has 6 points to a unit of logit(a). Limits are sought from logit -10, which
// is 4.5e-5, to 6, which is 0.9975; two points more at each end serve to interpolate.
const (
	perLogit    = 6
	lowestLogit = -10 - 2./perLogit
	points      = 16*perLogit + 1 + 4
	firstCell   = 2
	lastCell    = points - 4
)

// grid holds (1-a)/a of each point, and a/(1-a).
var grid = func() (odds [2][points]float64) {
	for j := range points {
		logit := lowestLogit + float64(j)/perLogit
		odds[0][j], odds[1][j] = math.Exp(-logit), math.Exp(logit)
	}
	return odds
}()

// riskAt returns a at a position on the grid.
func riskAt(position float64) float64 { return 1 / (1 + math.Exp(-lowestLogit-position/perLogit)) }

// positionOf returns the position of a, in [0, 1], or that of the nearest end of the cells.
func positionOf(a float64) float64 {
	logit := math.Log(a) - math.Log1p(-a) // ±Inf at 0 and 1
	return max(firstCell, min((logit-lowestLogit)*perLogit, lastCell+1))
}

// cellOf returns the cell of a position: the point of the grid on its left.
func cellOf(position float64) int { return min(int(position), lastCell) }

// interpolationError bounds the error of the logarithm of a bet's wealth, for each outcome that it
// gained from. The logarithm is a sum of log(1 + exp(x+c)), x = ±logit(a), whose sixth derivative is
// at most 1/4 in absolute value. Lagrange interpolation through six points, between the middle two,
// errs by that times h^6/6! times the largest product of distances, (1/2 3/2 5/2)^2.
const interpolationError = 0.25 / (perLogit * perLogit * perLogit * perLogit * perLogit * perLogit) / 720 *
	(0.5 * 1.5 * 2.5) * (0.5 * 1.5 * 2.5)

// A local is a wealth about a cell of the grid: the logarithm of each bet's at the six points around.
type local struct {
	first int
	logs  [6][sequenceBets]float64
	error float64
}

// local returns the wealth near cell j after the given number of outcomes.
func (w *wealth) local(j int, gains float64) local {
	l := local{first: j - 2, error: gains * interpolationError}
	for i := range l.logs {
		l.logs[i] = w.logs(l.first + i)
	}
	return l
}

// log returns a lower limit of the logarithm of the mean over bets; -Inf where all are lost.
func (l *local) log(position float64) float64 {
	var logs [sequenceBets]float64
	x := position - float64(l.first)
	for i := range l.logs {
		weight := lagrange[i]
		for m := range l.logs {
			if m != i {
				weight *= x - float64(m)
			}
		}
		for k, v := range l.logs[i] {
			if weight != 0 {
				logs[k] += weight * v
			}
		}
	}
	for k, v := range l.logs[0] {
		if math.IsInf(v, -1) {
			logs[k] = v
		}
	}
	return logMean(logs[:]) - l.error
}

// lagrange holds 1/((i-0)(i-1)...(i-5)) without the factor 0.
var lagrange = [6]float64{-1. / 120, 1. / 24, -1. / 12, 1. / 12, -1. / 24, 1. / 120}
