package document

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Types of cells. Strings stand as they are, and counts are shown as Count does. A nil cell is empty.
type (
	// Share is a fraction, shown as a percentage with one decimal.
	Share float64
	// FineShare is a fraction about 0.01, shown as a percentage with two decimals.
	FineShare float64
	// Number is shown with four decimals.
	Number float64
	// Short is shown with three significant digits.
	Short float64
	// Times is a ratio, shown as 2.50x.
	Times float64
	// ShareInterval has the ends of a 95% interval of a Share.
	ShareInterval [2]float64
	// FineInterval has the ends of a 95% interval of a FineShare.
	FineInterval [2]float64
	// NumberInterval has the ends of a 95% interval of a Number.
	NumberInterval [2]float64
	// Spread is a Number with its standard deviation.
	Spread [2]float64
	// Of is a count out of another: each an int or a float64.
	Of [2]any
)

// notAvailable stands for a figure of nothing, which is NaN.
const notAvailable = "n/a"

// Format returns the text of a cell.
func Format(cell any) string {
	switch v := cell.(type) {
	case nil:
		return ""
	case string:
		return v
	case int:
		return Count(v)
	case float64:
		return Count(v)
	case Share:
		return Percent(float64(v))
	case FineShare:
		return FinePercent(float64(v))
	case Number:
		return Decimal(float64(v))
	case Short:
		return Digits(float64(v))
	case Times:
		if math.IsNaN(float64(v)) {
			return notAvailable
		}
		return fmt.Sprintf("%.2fx", float64(v))
	case ShareInterval:
		return PercentRange(v[0], v[1])
	case *[2]float64:
		if v == nil {
			return notAvailable
		}
		return PercentRange(v[0], v[1])
	case *FineInterval:
		if v == nil {
			return notAvailable
		}
		return Format(*v)
	case FineInterval:
		return FinePercent(v[0]) + " to " + FinePercent(v[1])
	case NumberInterval:
		if math.IsNaN(v[0]) || math.IsNaN(v[1]) {
			return notAvailable
		}
		return Decimal(v[0]) + " to " + Decimal(v[1])
	case Spread:
		if math.IsNaN(v[0]) {
			return notAvailable
		}
		return Decimal(v[0]) + " ± " + Decimal(v[1])
	case Of:
		return Format(v[0]) + " of " + Format(v[1])
	}
	return fmt.Sprint(cell)
}

// Count returns a number with commas between thousands. An expected count that is not whole has a
// decimal, or two digits where that would show none of them.
func Count[N int | float64](count N) string {
	n := float64(count)
	if n != 0 && math.Abs(n) < 0.05 {
		return fmt.Sprintf("%.2g", n)
	}
	s, decimals := strconv.FormatFloat(n, 'f', 0, 64), ""
	if n != math.Trunc(n) {
		s = strconv.FormatFloat(n, 'f', 1, 64)
		s, decimals = s[:len(s)-2], s[len(s)-2:]
	}
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s + decimals
}

// Percent returns a share as a percentage with one decimal.
func Percent[F ~float64](share F) string {
	if math.IsNaN(float64(share)) {
		return notAvailable
	}
	return fmt.Sprintf("%.1f%%", 100*float64(share))
}

// WholePercent returns a share as a percentage without decimals.
func WholePercent(share float64) string {
	if math.IsNaN(share) {
		return notAvailable
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

// RoundPercent returns a share as Percent does, without a decimal that is 0.
func RoundPercent[F ~float64](share F) string { return strings.Replace(Percent(share), ".0%", "%", 1) }

// FinePercent returns a share as a percentage with two decimals.
func FinePercent[F ~float64](share F) string {
	if math.IsNaN(float64(share)) {
		return notAvailable
	}
	return fmt.Sprintf("%.2f%%", 100*float64(share))
}

// PercentRange returns the ends of an interval of shares.
func PercentRange[F ~float64](low, high F) string {
	if math.IsNaN(float64(low)) || math.IsNaN(float64(high)) {
		return notAvailable
	}
	return Percent(low) + " to " + Percent(high)
}

// Interval95 returns the ends of a 95% interval of shares, in percent, for sentences: "95%: 0.9 to 3.6".
func Interval95[F ~float64](low, high F) string {
	return fmt.Sprintf("95%%: %.1f to %.1f", 100*float64(low), 100*float64(high))
}

// Decimal returns a number with four decimals, or with two digits where four decimals would show
// none of them.
func Decimal[F ~float64](value F) string {
	x := float64(value)
	if math.IsNaN(x) {
		return notAvailable
	}
	if x != 0 && math.Abs(x) < 0.0005 {
		return fmt.Sprintf("%.2g", x)
	}
	return fmt.Sprintf("%.4f", x)
}

// Digits returns a number with three significant digits.
func Digits[F ~float64](value F) string {
	x := float64(value)
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return notAvailable
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

// fewDigits returns a number of 0 or more with two digits, for the cells of large matrices.
func fewDigits(x float64) string {
	switch {
	case math.IsNaN(x):
		return notAvailable
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

// Noun returns a count with its noun, in the plural unless it is 1: "1 input", "2 inputs", "2 passes".
func Noun[N int | float64](n N, singular string) string {
	switch {
	case n == 1:
		return "1 " + singular
	case strings.HasSuffix(singular, "s"):
		return Count(n) + " " + singular + "es"
	}
	return Count(n) + " " + singular + "s"
}

// List joins words: "a, b and c".
func List(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// Label shortens a name for places with little room. The result is one line without control
// characters, and not empty.
func Label(name string) string {
	if name = shorten(name, 24); strings.TrimSpace(name) == "" {
		return "(no name)"
	}
	return name
}

// shorten returns one line of up to most characters, without control characters.
func shorten(name string, most int) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most-1]) + "\u2026"
	}
	return name
}

// Plain returns a number as it was typed.
func Plain(x float64) string {
	if x == math.Trunc(x) {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%g", x)
}
