package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/ckd-project/ckd/eval"
)

// count is a whole number with its thousands apart.
func count(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// percent of a share, with one decimal.
func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// roundPercent is percent without a decimal that is 0.
func roundPercent(share float64) string { return strings.Replace(percent(share), ".0%", "%", 1) }

// number has four decimals, or two digits where these would show none.
func number(x float64) string {
	if x != 0 && math.Abs(x) < 0.0005 {
		return fmt.Sprintf("%.2g", x)
	}
	return fmt.Sprintf("%.4f", x)
}

// short is a number in three digits, for cells.
func short(x float64) string {
	switch a := math.Abs(x); {
	case x == 0:
		return "0"
	case a >= 1e6 || a < 1e-3:
		return fmt.Sprintf("%.1e", x)
	case a >= 100:
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	case a >= 1:
		return fmt.Sprintf("%.2f", x)
	default:
		return fmt.Sprintf("%.3f", x)
	}
}

// tiny is a number in two digits, for cells of large tables.
func tiny(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0.995:
		return strings.TrimPrefix(fmt.Sprintf("%.2f", x), "0")
	case x < 9.95:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.0f", x)
	}
}

// natUnit is the unit in which a largest value of nats has one to three digits
// before its point: how many there are in a nat, and its name.
func natUnit(highest float64) (perNat float64, name string) {
	switch {
	case highest < 1e-6:
		return 1e9, "0.000000001 nats"
	case highest < 1e-3:
		return 1e6, "0.000001 nats"
	default:
		return 1e3, "0.001 nats"
	}
}

// times is a ratio of two means.
func times(x float64) string { return fmt.Sprintf("%.2f", x) }

// interval is a 95% interval of numbers.
func interval(i eval.Interval) string { return number(i.Low) + " to " + number(i.High) }

// percentInterval is a 95% interval of shares.
func percentInterval(low, high float64) string { return percent(low) + " to " + percent(high) }

// noun is a count and its noun: "1 input", "2 inputs".
func noun(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

// list joins words: "a, b and c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// label is a name for places with little room: one line, no control characters,
// never empty.
func label(name string) string {
	const most = 24
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most-1]) + "\u2026"
	}
	if strings.TrimSpace(name) == "" {
		return "(no name)"
	}
	return name
}

// share is n/of, and 0 of nothing.
func share(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// missedOf is "32 of 364 (8.8%)".
func missedOf(at eval.At) string {
	if at.CriticalRetained == 0 {
		return "0 of 0"
	}
	return fmt.Sprintf("%s of %s (%s)", count(at.CriticalMissed), count(at.CriticalRetained), percent(at.CriticalFNR))
}

// plain is a ranking as a sentence says it.
func plain(name string) string {
	if name == mi {
		return "mutual information"
	}
	return name
}

// alone is the same, where mutual information is what others are held against.
func alone(name string) string {
	if name == mi {
		return "mutual information alone"
	}
	return name
}
