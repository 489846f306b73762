package evidence

import "math"

const (
	// sequenceBets counts the bets of a wealth: boldest * 2^-k of what could be lost.
	sequenceBets = 12
	// exponentBits is what one unit of an exponent stands for: a factor of 2^exponentBits.
	exponentBits = 512
)

// A wealth is that of one side of a Sequence, at each point of the grid. At point j, bet k has
//
//	exp(lost[k]) * points[j].Gained[k] * 2^(512 points[j].Exponent[k]).
type wealth struct {
	propensity float64          // the least of an outcome that loses, in this cohort; 0 bets nothing
	odds       *[points]float64 // what an outcome that gains wins of the stake
	lost       [sequenceBets]float64
	points     []point
}

// point is what the bets have gained at a point of the grid.
type point struct {
	Gained   [sequenceBets]float64 // from 1 to 2^512
	Exponent [sequenceBets]uint32
}

// newWealth returns the wealth of side +1, whose odds are (1-a)/a, or of side -1, a/(1-a).
func newWealth(side int) wealth {
	w := wealth{odds: &grid[(1-side)/2], points: make([]point, points)}
	for j := range w.points {
		for k := range sequenceBets {
			w.points[j].Gained[k] = 1
		}
	}
	return w
}

// lose adds an outcome that goes against the bets, which costs a share of the wealth that does not
// depend on the point.
func (w *wealth) lose(propensity float64) {
	stake := boldest * w.propensity / propensity
	for k := range w.lost {
		w.lost[k] += math.Log1p(-min(stake, 1))
		stake /= 2
	}
}

// gain adds an outcome that goes with the bets.
func (w *wealth) gain(propensity float64) {
	// Factors stay below 2^512: odds are below 2^18, stakes below 2^149.
	stake := boldest * w.propensity / propensity
	for j := range w.points {
		gained, won := &w.points[j].Gained, stake*w.odds[j]
		for k := range gained {
			gained[k] += gained[k] * won
			won /= 2
			if gained[k] >= 0x1p512 {
				gained[k] *= 0x1p-512
				w.points[j].Exponent[k]++
			}
		}
	}
}

// logs returns the logarithm of each bet's wealth at a point of the grid; -Inf where all is lost.
func (w *wealth) logs(j int) (logs [sequenceBets]float64) {
	for k := range logs {
		logs[k] = w.lost[k] + math.Log(w.points[j].Gained[k]) + float64(w.points[j].Exponent[k])*(exponentBits*math.Ln2)
	}
	return logs
}

// logMean returns the logarithm of the mean of what logs are the logarithms of.
func logMean(logs []float64) float64 {
	most := math.Inf(-1)
	for _, l := range logs {
		most = max(most, l)
	}
	if math.IsInf(most, -1) {
		return most
	}
	sum := 0.0
	for _, l := range logs {
		sum += math.Exp(l - most)
	}
	return most + math.Log(sum/float64(len(logs)))
}

// logSum returns log(exp(a) + exp(b)).
func logSum(a, b float64) float64 {
	most := max(a, b)
	if math.IsInf(most, -1) {
		return most
	}
	return most + math.Log1p(math.Exp(min(a, b)-most))
}
