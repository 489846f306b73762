package decisionlog

import (
	"encoding/hex"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/policy"
)

// Record is one decision. Add copies what it keeps.
type Record struct {
	// Time of the decision, in microseconds since 1970.
	Time int64
	// Model, the version of the model, and the hash of the policy that decided.
	Model, ModelVersion, PolicyHash string
	// Decision is what the client was answered, and Classes names the classes.
	Decision *policy.Decision
	Classes  []string
	// Predicted is the class of the largest mean.
	Predicted int
	// Stratum says why a person looks at the input, or may.
	Stratum string
	// Scores by their number in package decomp; NaN where undefined. Risk is NaN where it is not known.
	Scores *[decomp.NumScores]float64
	Risk   float64
	Passes int
	// Settled says that the input was decided before its last pass, and Review that a person is to look at it.
	Settled, Review bool
	// Propensity is the probability of that review; NaN where nothing was drawn.
	Propensity float64
	// Share is the probability with which the record is kept.
	Share float64
	// ID is the client's id of the input, and IDHash a keyed hash of it. Empty and 0 are left out.
	ID     []byte
	IDHash uint64
	// Trace is the trace that the call is part of; zero for none.
	Trace [16]byte
	// Mean, C and Skewness have a number for each class, or are nil.
	Mean, C, Skewness []float64
}

// numberKey begins the line of a record. The number follows when it is known.
const numberKey = `{"number":`

// mostNumber bounds the bytes that stand before what an encoder writes.
const mostNumber = len(numberKey) + 20

// encoder writes records as JSON. It is reused, and allocates only to grow.
type encoder struct {
	line   []byte
	second int64 // that date is of, since 1970
	date   [len("2006-01-02T15:04:05")]byte
}

// encode returns the line of a record after its number. It is valid until the next call.
func (e *encoder) encode(r *Record) []byte {
	b := e.line[:0]
	b = append(b, `,"time":"`...)
	b = e.appendTime(b, r.Time)
	b = append(b, '"')
	if len(r.ID) > 0 {
		b = appendText(append(b, `,"id":`...), r.ID)
	}
	if r.IDHash != 0 {
		b = append(b, `,"id_hash":"`...)
		b = append(appendHex(b, r.IDHash), '"')
	}
	b = appendText(append(b, `,"model":`...), r.Model)
	if r.ModelVersion != "" {
		b = appendText(append(b, `,"model_version":`...), r.ModelVersion)
	}
	b = appendText(append(b, `,"policy_hash":`...), r.PolicyHash)
	b = appendDecision(b, r.Decision, r.Classes)
	b = appendText(append(b, `,"predicted":`...), r.Classes[r.Predicted])
	if r.Stratum != "" {
		b = appendText(append(b, `,"stratum":`...), r.Stratum)
	}
	b = appendNumber(b, `,"risk":`, r.Risk)
	b = appendScores(b, r.Scores)
	b = strconv.AppendInt(append(b, `,"passes":`...), int64(r.Passes), 10)
	if r.Settled {
		b = append(b, `,"settled":true`...)
	}
	if r.Review {
		b = append(b, `,"review":true`...)
	}
	b = appendNumber(b, `,"propensity":`, r.Propensity)
	if r.Share < 1 {
		b = appendNumber(b, `,"share":`, r.Share)
	}
	if r.Trace != [16]byte{} {
		b = append(b, `,"trace_id":"`...)
		b = append(hex.AppendEncode(b, r.Trace[:]), '"')
	}
	b = appendVector(b, `,"mean":`, r.Mean)
	b = appendVector(b, `,"c":`, r.C)
	b = appendVector(b, `,"skewness":`, r.Skewness)
	b = append(b, '}', '\n')
	e.line = b
	return b
}

// appendDecision appends the fields of a decision.
func appendDecision(b []byte, d *policy.Decision, classes []string) []byte {
	b = appendText(append(b, `,"action":`...), d.Action.String())
	b = appendText(append(b, `,"reason":`...), d.Reason.String())
	if gate := d.Gate.String(); gate != "" {
		b = appendText(append(b, `,"gate":`...), gate)
	}
	if d.Score != "" {
		b = appendText(append(b, `,"score":`...), string(d.Score))
	}
	b = appendNumber(b, `,"value":`, d.Value)
	if d.HasThreshold {
		b = appendNumber(b, `,"threshold":`, d.Threshold)
	}
	if d.Class >= 0 {
		b = appendText(append(b, `,"deciding_class":`...), classes[d.Class])
	}
	return b
}

// scoreKeys holds the names of scores as keys.
var scoreKeys = func() (keys [decomp.NumScores]string) {
	for i := range keys {
		keys[i] = `"` + decomp.Score(i).String() + `":`
	}
	return keys
}()

// appendScores appends the scores that are defined.
func appendScores(b []byte, scores *[decomp.NumScores]float64) []byte {
	if scores == nil {
		return b
	}
	between := `,"scores":{`
	for i, v := range scores {
		if !isFinite(v) {
			continue
		}
		b = append(b, between...)
		b = appendFloat(append(b, scoreKeys[i]...), v)
		between = ","
	}
	if between == "," {
		b = append(b, '}')
	}
	return b
}

// appendVector appends a key with a list of numbers; nothing for none.
func appendVector(b []byte, key string, values []float64) []byte {
	if len(values) == 0 {
		return b
	}
	b = append(b, key...)
	for i, v := range values {
		if i == 0 {
			b = append(b, '[')
		} else {
			b = append(b, ',')
		}
		if isFinite(v) {
			b = appendFloat(b, v)
		} else {
			b = append(b, "null"...)
		}
	}
	return append(b, ']')
}

// appendNumber appends a key with a number; nothing for a number that JSON cannot have.
func appendNumber(b []byte, key string, v float64) []byte {
	if !isFinite(v) {
		return b
	}
	return appendFloat(append(b, key...), v)
}

// appendFloat appends the shortest decimal that reads back as the same number.
func appendFloat(b []byte, v float64) []byte { return strconv.AppendFloat(b, v, 'g', -1, 64) }

func isFinite(v float64) bool { return math.Abs(v) <= math.MaxFloat64 } // NaN is not

// appendHex appends 16 hexadecimal digits.
func appendHex(b []byte, v uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[v>>shift&15])
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendTime appends a time in UTC: 2026-03-01T12:00:00.123456Z.
func (e *encoder) appendTime(b []byte, micros int64) []byte {
	second, rest := micros/1e6, micros%1e6
	if rest < 0 {
		second, rest = second-1, rest+1e6
	}
	if second != e.second || e.date[0] == 0 {
		e.second = second
		time.Unix(second, 0).UTC().AppendFormat(e.date[:0], "2006-01-02T15:04:05")
	}
	b = append(append(b, e.date[:]...), '.')
	for unit := int64(1e5); unit > 0; unit /= 10 {
		b = append(b, byte('0'+rest/unit%10))
	}
	return append(b, 'Z')
}

// appendText appends a JSON string. What is not UTF-8 becomes U+FFFD.
func appendText[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune([]byte(s[i:min(i+utf8.UTFMax, len(s))]))
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		b = append(b, s[from:i]...)
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c >= utf8.RuneSelf:
			b = append(b, "\ufffd"...)
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}
