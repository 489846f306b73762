package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// pattern is what a text has to look like, with what that means.
type pattern struct {
	regexp *regexp.Regexp // nil for any
	most   int            // bytes
	words  string
}

func newPattern(expression, words string) *pattern {
	return &pattern{regexp.MustCompile(expression), maxText, words}
}

// Bounds of texts, in bytes.
const (
	maxText     = 256
	maxSentence = 2048
)

// NameForm says in words what IsName wants.
const NameForm = "at most 128 letters, digits, dots, dashes and underscores, the first a letter or digit"

var (
	nameForm  = newPattern(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`, NameForm)
	classForm = newPattern(`.`, "a name, "+printable(maxText))
	// forms are the patterns of texts, by what their tags call them. Servers give tensors names such
	// as dense/Softmax:0.
	forms = map[string]*pattern{
		"":         {nil, maxText, printable(maxText)},
		"sentence": {nil, maxSentence, printable(maxSentence)},
		"reason":   {regexp.MustCompile(`\S`), maxSentence, "a reason, " + printable(maxSentence)},
		"person":   newPattern(`\S`, classForm.words),
		"date":     newPattern("^"+dayForm+"$", "a day, as in 2026-11-03"),
		"name":     nameForm,
		"class":    classForm,
		"tensor":   newPattern(`^.{1,256}$`, classForm.words),
		"logged":   newPattern(`^(reviewed|all|0\.0{0,8}[1-9][0-9]{0,8})$`, "reviewed, all, or a share above 0 and below 1 such as 0.05"),
		"sha256":   newPattern(`^[0-9a-f]{64}$`, "64 hexadecimal digits in lower case"),
	}
)

// IsName reports whether the text may name a model or a posterior: it is safe in a URL, a metric
// label and a file name.
func IsName(s string) bool { return nameForm.accepts(s) }

func (p *pattern) accepts(s string) bool {
	return (p.regexp == nil || p.regexp.MatchString(s)) && isPrintable(s, p.most)
}

func printable(most int) string { return fmt.Sprintf("at most %d bytes of printable text", most) }

func isPrintable(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029
	})
}

// Period is a length of time in seconds.
type Period int

// Lengths of time.
const (
	Second Period = 1
	minute        = 60 * Second
	hour          = 60 * minute
	day           = 24 * hour
)

// maxPeriod bounds periods.
const maxPeriod = 10_000 * day

// periodUnits lists the units of periods, the longest first.
var periodUnits = []struct {
	letter string
	length Period
}{{"d", day}, {"h", hour}, {"m", minute}, {"s", Second}}

// String returns the period in the longest unit of which it is a whole number, such as 14d or 36h.
func (p Period) String() string {
	for _, u := range periodUnits {
		if p%u.length == 0 {
			return strconv.Itoa(int(p/u.length)) + u.letter
		}
	}
	panic("not reached: every period is a number of seconds")
}

// parsePeriod reads what String returns.
func parsePeriod(s string) (Period, bool) {
	for _, u := range periodUnits {
		digits, found := strings.CutSuffix(s, u.letter)
		if n, err := strconv.ParseUint(digits, 10, 32); found && err == nil && n > 0 && n <= uint64(maxPeriod/u.length) {
			return Period(n) * u.length, true
		}
	}
	return 0, false
}
