package risk

import "math"

// Log-odds and their inverse are computed for every input that the daemon decides. math.Log and
// math.Exp would take most of that time, so that both are computed here, with tables.

// clip is how far probabilities are kept from 0 and 1 before their log-odds are taken, so that these
// are finite.
const clip = 1e-6

// LogOdds returns log(p/(1-p)) of p clipped to [clip, 1-clip], to 4e-15; NaN for NaN.
func LogOdds(p float64) float64 {
	if math.IsNaN(p) {
		return p
	}
	p = math.Float64frombits(uint64(min(max(int64(math.Float64bits(p)), leastBits), mostBits)))
	return logarithm(math.Float64bits(p / (1 - p)))
}

// leastBits and mostBits are clip and 1-clip as whole numbers, which compare as the numbers do unless
// both are negative, and in less time.
var leastBits, mostBits = int64(math.Float64bits(clip)), int64(math.Float64bits(1 - clip))

const (
	logBits = 7 // bits of the mantissa that choose an entry of logs
	expBits = 6 // 2^expBits steps to a factor of 2
)

// logs holds, for steps of the mantissa from 1 to 2, the inverse of a number in the middle of the
// step, and its logarithm.
var logs = func() (t [1 << logBits]struct{ inverse, log float64 }) {
	for i := range t {
		t[i].inverse = 1 / (1 + (float64(i)+0.5)/(1<<logBits))
		t[i].log = -math.Log(t[i].inverse)
	}
	return t
}()

// logarithm returns the natural logarithm of a positive normal number, given its bits. It is short
// enough to be inlined.
func logarithm(bits uint64) float64 {
	step := &logs[bits>>(52-logBits)&(1<<logBits-1)]
	t := math.Float64frombits(bits&(1<<52-1)|1023<<52)*step.inverse - 1 // at most 1/256
	t2 := t * t
	return float64(int(bits>>52)-1023)*math.Ln2 + step.log + (t - t2*0.5 + t2*t*(1.0/3-t*0.25+t2*0.2))
}

// powers holds 2^(i/64).
var powers = func() (t [1 << expBits]float64) {
	for i := range t {
		t[i] = math.Exp2(float64(i) / (1 << expBits))
	}
	return t
}()

// Logistic returns 1/(1+exp(-z)), in [0,1], to 2e-15 of its size.
func Logistic(z float64) float64 {
	const (
		steps = 1 << expBits
		round = 3 << 51 // adding it leaves a whole number in the low bits
		// high is ln 2 / 64 with 32 bits, so that its multiples are exact.
		high = 46516319.0 / (1 << 32)
		low  = math.Ln2/steps - high
	)
	if !(math.Abs(z) < 600) { // neither exp(-z) nor a power of 2 below is out of range
		return 1 / (1 + math.Exp(-z))
	}
	shifted := -z*(steps/math.Ln2) + round
	n := int64(math.Float64bits(shifted)) - int64(math.Float64bits(round))
	r := -z - (shifted-round)*high - (shifted-round)*low
	r2 := r * r
	series := r + r2*(0.5+r*(1.0/6)+r2*(1.0/24+r*(1.0/120)))
	power := math.Float64frombits(math.Float64bits(powers[n&(steps-1)]) + uint64(n>>expBits)<<52)
	return 1 / (1 + power + power*series)
}
