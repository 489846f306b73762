package policy

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ckd-project/ckd/internal/strictyaml"
	"github.com/ckd-project/ckd/policy/earlystop"
)

// field is one key of a policy file. The struct field that holds its value says in tags what the
// key is called and accepts; its comment is the key's documentation.
//
//	key        the name; then "required", or "spelled" for a key that Marshal writes even at its
//	           default; ",inline" puts the keys of a struct beside those around it
//	in         the mapping that the key stands in, where the struct has none for it
//	form       what a text looks like, or which choices there are: see forms and choices
//	range      bounds of a number or of a list's length: 0..1, (0..1) without its ends, >0 or >=0
//	default    the default value; otherwise says it in words if it depends on other fields
//	if         the bool beside it that says whether the value was given
type field struct {
	name              string
	index             []int // of the struct field in the struct of the mapping; nil if the keys of sub are that struct's own
	kind              valueKind
	sub               []field // keys of a mapping, or of each entry of a list
	required, spelled bool
	form              *pattern
	choices           []string
	within            strictyaml.Range
	standard          reflect.Value // not valid for none
	otherwise         string
	flag              string
}

// valueKind says how a value is written.
type valueKind int

const (
	textValue valueKind = iota
	choiceValue
	classValue    // a class: its name in files, its position in a struct
	namesValue    // names, each once: those of classes are positions in a struct
	wholeValue    // a whole number
	numberValue   // a number with a fraction
	boolValue     // true or false
	quantileValue // a distribution
	periodValue   // a length of time
	alarmValue    // the name of an alarm
	mappingValue
	listValue // a list of mappings
)

// modelFields are the keys of a model.
var modelFields = fieldsOf(reflect.TypeFor[Policy]())

// fieldsOf returns the keys that a struct declares, with an index that begins as given.
func fieldsOf(t reflect.Type, index ...int) (fields []field) {
	for i := range t.NumField() {
		member := t.Field(i)
		key, tagged := member.Tag.Lookup("key")
		if !tagged {
			continue
		}
		at := append(slices.Clone(index), i)
		var declared []field
		if key == ",inline" {
			declared = fieldsOf(target(member.Type), at...)
		} else {
			declared = []field{newField(member, at)}
		}
		switch in, last := member.Tag.Get("in"), len(fields)-1; {
		case in == "":
			fields = append(fields, declared...)
		case last >= 0 && fields[last].name == in:
			fields[last].sub = append(fields[last].sub, declared...)
		default:
			fields = append(fields, field{name: in, kind: mappingValue, sub: declared})
		}
	}
	return fields
}

// target returns the type that a pointer points to, or the type itself.
func target(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// newField returns the key that a struct field declares.
func newField(member reflect.StructField, index []int) field {
	tag := member.Tag
	name, option, _ := strings.Cut(tag.Get("key"), ",")
	f := field{
		name: name, index: index, required: option == "required", spelled: option == "spelled",
		otherwise: tag.Get("otherwise"), flag: tag.Get("if"), within: parseRange(tag.Get("range")),
	}
	form, t := tag.Get("form"), target(member.Type)
	f.choices = choices[form]
	if f.choices == nil {
		f.choices = choicesOf[t]
	}
	switch {
	case form == "class" && t.Kind() == reflect.Int:
		f.kind = classValue
	case t == reflect.TypeFor[Period]():
		f.kind = periodValue
	case t == reflect.TypeFor[AlarmName]():
		f.kind = alarmValue
	case f.choices != nil:
		f.kind = choiceValue
	case t.Kind() == reflect.String:
		f.kind, f.form = textValue, forms[form]
	case t.Kind() == reflect.Int, t.Kind() == reflect.Uint64:
		f.kind = wholeValue
	case t.Kind() == reflect.Float64:
		f.kind = numberValue
	case t.Kind() == reflect.Bool:
		f.kind = boolValue
	case t.Kind() == reflect.Struct:
		f.kind, f.sub = mappingValue, fieldsOf(t)
	case t.Elem().Kind() == reflect.String, form == "class":
		f.kind = namesValue
	case t.Elem().Kind() == reflect.Float64:
		f.kind = quantileValue
	default:
		f.kind, f.sub = listValue, fieldsOf(t.Elem())
	}
	if standard, given := tag.Lookup("default"); given {
		f.standard = parseDefault(standard, t)
	}
	return f
}

// parseRange returns the range that a tag states; none for an empty one.
func parseRange(tag string) strictyaml.Range {
	number := func(s string) float64 {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			panic(err) // tags are constants of the program
		}
		return x
	}
	if bound, ok := strings.CutPrefix(tag, ">="); ok {
		return strictyaml.AtLeast(number(bound))
	}
	if bound, ok := strings.CutPrefix(tag, ">"); ok {
		return strictyaml.Above(number(bound))
	}
	inner, open := strings.CutPrefix(tag, "(")
	least, most, ok := strings.Cut(strings.TrimSuffix(inner, ")"), "..")
	if !ok {
		return strictyaml.AtLeast(math.Inf(-1))
	}
	r := strictyaml.Between(number(least), number(most))
	r.Open, r.OpenMost = open, open
	return r
}

// parseDefault returns a default of a type.
func parseDefault(text string, t reflect.Type) reflect.Value {
	value := reflect.New(t).Elem()
	switch {
	case t == reflect.TypeFor[Period]():
		p, _ := parsePeriod(text)
		value.SetInt(int64(p))
	case t.Kind() == reflect.Float64:
		value.SetFloat(parseRange(">=" + text).Least)
	default:
		value.SetString(text)
	}
	return value
}

// choicesOf has the texts of each type that has few, choices those of a form.
var choicesOf = map[reflect.Type][]string{
	reflect.TypeFor[Kind]():                texts(Probabilities, Logits, Dirichlet),
	reflect.TypeFor[Variance]():            texts(Sample, Population),
	reflect.TypeFor[Gate]():                texts(AnyCritical, Always, Never),
	reflect.TypeFor[Scope]():               texts(AllInputs, PredictedSafe),
	reflect.TypeFor[Score]():               texts(RuleScores()...),
	reflect.TypeFor[Pairs]():               texts(SafeCriticalPairs, AllPairs),
	reflect.TypeFor[Handling]():            texts(handlings...),
	reflect.TypeFor[AuditedCritical]():     texts(CriticalAudited, CriticalFree),
	reflect.TypeFor[OnBreach]():            texts(AlarmOnBreach, DeferOnBreach),
	reflect.TypeFor[LoggedID]():            texts(LogNoID, LogHashID, LogPlainID),
	reflect.TypeFor[CertificateKind]():     texts(LearnThenTest),
	reflect.TypeFor[Figure]():              texts(figures...),
	reflect.TypeFor[PassOrder]():           texts(AnyOrder, MembersOrder),
	reflect.TypeFor[earlystop.Statistic](): texts(earlystop.StatisticNames[:]...),
}

var choices = map[string][]string{"guard": texts(GuardScores()...)}

var handlings = []Handling{HandleDefer, HandleRetain, HandleByScore}

func texts[T ~string](values ...T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

// value returns where a struct holds the key's value, with pointers followed. It is not valid
// where a pointer is nil, unless these are to be made.
func (f *field) value(in reflect.Value, create bool) reflect.Value {
	for _, i := range f.index {
		in = in.Field(i)
		if in.Kind() != reflect.Pointer {
			continue
		}
		if in.IsNil() {
			if !create {
				return reflect.Value{}
			}
			in.Set(reflect.New(in.Type().Elem()))
		}
		in = in.Elem()
	}
	return in
}

// words say what is expected, as in "expected ...".
func (f *field) words() string {
	switch f.kind {
	case textValue:
		if f.form != classForm {
			return f.form.words
		}
		fallthrough
	case classValue:
		return "the name of a class"
	case choiceValue:
		return "one of " + strings.Join(f.choices, ", ")
	case namesValue:
		if f.within.Least > 0 {
			return fmt.Sprintf("a list of at least %v names", f.within.Least)
		}
		return "a list of names"
	case wholeValue:
		return fmt.Sprintf("a whole number from %d to %d", int(f.within.Least), f.most())
	case numberValue:
		return f.within.String()
	case boolValue:
		return "true or false"
	case quantileValue:
		return fmt.Sprintf("a list of %d numbers, none below the one before", Levels)
	case periodValue:
		return fmt.Sprintf("a whole number and d, h, m or s, as in 14d, from %v to %v", Second, maxPeriod)
	case alarmValue:
		return alarmWords
	case mappingValue:
		return "a mapping of " + strings.Join(namesOf(f.sub), ", ")
	}
	return "a list of mappings of " + strings.Join(namesOf(f.sub), ", ")
}

// most returns the largest whole number that the key accepts. Seeds have no bound of their own.
func (f *field) most() int {
	if math.IsInf(f.within.Most, 1) {
		return math.MaxInt
	}
	return int(f.within.Most)
}

// namesOf returns the names of keys, in their order.
func namesOf(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}
