package decomp

// Score names a deferral score: a number for an input; inputs with higher ones are deferred first.
type Score uint8

// The paper's ten scores, with their formula and equation.
const (
	Entropy   Score = iota // predictive entropy, nats (app-ent)
	MI                     // mutual information, nats (app-mi)
	MaxProb                // 1 - max_k mu_k (app-maxprob)
	EUVar                  // sum of variances over all classes (app-sale-global)
	VarCrit                // largest variance of a critical class (app-varcrit)
	EUVarCrit              // sum of variances over critical classes (app-sale-crit)
	OvAMI                  // sum of one-vs-all MI over critical classes, nats (app-ova)
	CCritSum               // sum of C_k over critical classes, nats (app-csum)
	CCritMax               // largest C_k of a critical class, nats (app-cmax)
	CBEC                   // cross-boundary epistemic confusion, nats (app-cbec)

	// PaperScores is how many scores are the paper's: those below it.
	PaperScores = iota
)

// The scores that the paper does not have.
const (
	// PCritical is the probability of a critical class by the mean prediction, sum_k mu_k over the
	// critical classes k (after app-mu), without unit, in [0,1] up to the sum tolerance of the rows.
	// It needs the critical set alone. It measures no disagreement of passes: one pass has it too,
	// and identical passes have that of each.
	PCritical Score = PaperScores + iota

	// NumScores is how many scores there are.
	NumScores = PaperScores + iota
)

// InPaper reports whether the score is one of the paper's ten, over which its tables are made.
func (s Score) InPaper() bool { return s < PaperScores }

var scoreNames = [NumScores]string{
	"entropy", "mi", "maxprob", "eu_var", "var_crit", "eu_var_crit", "ova_mi", "c_crit_sum", "c_crit_max", "cbec",
	"p_critical",
}

// String returns the score's name as files and interfaces write it.
func (s Score) String() string {
	if int(s) < len(scoreNames) {
		return scoreNames[s]
	}
	return "unknown"
}

// ParseScore returns the score of a name, and whether there is one.
func ParseScore(name string) (Score, bool) {
	for s, n := range scoreNames {
		if n == name {
			return Score(s), true
		}
	}
	return 0, false
}
