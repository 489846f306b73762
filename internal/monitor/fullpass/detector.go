package fullpass

// odds lists the ratios of odds, disagreement against agreement, that a detector bets on: rises to
// about these multiples of a small certified share.
var odds = [...]float64{1.5, 2, 3, 5, 10}

// detector gathers evidence that disagreements have become more frequent than certified, at any
// time.
//
// It is the e-detector of Shin, Ramdas and Rinaldo, "E-detectors: a nonparametric framework for
// sequential change detection", New England Journal of Statistics in Data Science 2, 2024, in the
// form of Shiryaev and Roberts (their e-SR), of a mixture of likelihood ratios:
//
//	M_n = mean over the alternatives q of M_n(q),  M_0(q) = 0
//	M_n(q) = (M_{n-1}(q) + 1) q/p            if check n disagrees
//	M_n(q) = (M_{n-1}(q) + 1) (1-q)/(1-p)    otherwise
//
// where p is the certified share and q > p. Each factor has a mean of at most 1 if the probability
// to disagree is at most p given the past. Then M_n - n is a supermartingale, so that E[M_T] <=
// E[T] at every stopping time T: an e-detector. So M_n first reaches c after c checks or more, on
// average.
//
// Their e-CUSUM, with max(M, 1) in place of M + 1, is never above it: at the same c it is slower to
// stop, with no stronger guarantee.
type detector struct {
	up, down [len(odds)]float64 // q/p, (1-q)/(1-p)
	m        [len(odds)]float64
	runs     [len(odds)]run
	seen     Count
}

func newDetector(p float64) detector {
	var d detector
	for j, o := range odds {
		q := p * o / (1 - p + p*o)
		d.up[j], d.down[j] = q/p, (1-q)/(1-p)
	}
	return d
}

// count counts a check.
func (d *detector) count(hit bool) {
	d.seen.Checked++
	if hit {
		d.seen.Disagreements++
	}
}

// weigh adds a check to the evidence.
func (d *detector) weigh(hit bool) {
	for j := range d.m {
		factor := d.down[j]
		if hit {
			factor = d.up[j]
		}
		d.m[j] = (d.m[j] + 1) * factor
		d.runs[j].add(hit, factor)
	}
}

// evidence returns M_n.
func (d *detector) evidence() float64 {
	sum := 0.0
	for _, m := range d.m {
		sum += m
	}
	return sum / float64(len(d.m))
}

// recent returns the checks that most of the evidence rests on: those since the rise began,
// according to the alternative with the most evidence.
func (d *detector) recent() Count {
	best := 0
	for j, m := range d.m {
		if m > d.m[best] {
			best = j
		}
	}
	return d.runs[best].seen
}

// run counts the checks since a rise to one alternative most likely began: those since its
// likelihood ratio was last below 1 (Page's CUSUM).
type run struct {
	ratio float64
	seen  Count
}

func (r *run) add(hit bool, factor float64) {
	r.ratio = max(r.ratio, 1) * factor
	if r.ratio <= 1 {
		*r = run{}
		return
	}
	r.seen.Checked++
	if hit {
		r.seen.Disagreements++
	}
}
