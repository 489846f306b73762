package passcheck

import (
	"math"
	"slices"
)

// The comparison of passes rests on a sample of inputs, spread evenly, and on few columns: the classes,
// or sums over some of them where there are many.
const (
	mostColumns = 16
	mostInputs  = 1024
	mostValues  = 1 << 21 // of all passes together
	mostOthers  = 16      // passes that each is compared with
	fewInputs   = 100     // fewer cannot tell passes or labels apart
	fewVarying  = 20      // too few inputs that make up a column's variance
	decided     = 15      // hard votes that differ: none by a chance of e^-15
)

// sample holds the probabilities of some inputs, as [pass][input*columns+column].
type sample struct {
	columns, inputs int
	values          [][]float32
	// varies has the sum over inputs and columns of the squared distance from the pass's own mean over
	// inputs, and vote says whether all rows of the pass are one-hot.
	varies []float64
	votes  []bool
}

func (d *data) sample() *sample {
	s := &sample{columns: min(d.classes, mostColumns)}
	s.inputs = min(d.Inputs, mostInputs, max(fewInputs, mostValues/(s.columns*d.Tensor.Passes)))
	s.values = make([][]float32, d.Tensor.Passes)
	s.varies, s.votes = make([]float64, d.Tensor.Passes), make([]bool, d.Tensor.Passes)
	row, columns := make([]float64, d.classes), columnsOf(d.classes)
	for pass := range s.values {
		values := make([]float32, s.inputs*s.columns)
		s.votes[pass] = true
		for i := range s.inputs {
			d.row(row, pass, int(int64(i)*int64(d.Inputs)/int64(s.inputs)))
			s.votes[pass] = s.votes[pass] && second(row) == 0
			for k, p := range row {
				values[i*s.columns+columns[k]] += float32(p)
			}
		}
		s.values[pass] = values
		for c := range s.columns {
			s.varies[pass] += s.moments(pass, c).square
		}
	}
	return s
}

// columnsOf returns the column of each class. Of more classes than columns it mixes the numbers, so that
// no shift of the classes leaves all in their columns.
func columnsOf(classes int) []int {
	columns := make([]int, classes)
	for k := range columns {
		if columns[k] = k; classes > mostColumns {
			columns[k] = int(mix(hashSeed, uint64(k)) % mostColumns)
		}
	}
	return columns
}

// moments of a column over the inputs: its mean, the sum of squares about it, and the number of inputs
// that would give that sum if they all were as far from the mean.
type moments struct{ mean, square, varying float64 }

func (s *sample) moments(pass, column int) (m moments) {
	values := s.values[pass]
	for at := column; at < len(values); at += s.columns {
		m.mean += float64(values[at]) / float64(s.inputs)
	}
	fourth := 0.
	for at := column; at < len(values); at += s.columns {
		d := float64(values[at]) - m.mean
		m.square += d * d
		fourth += d * d * d * d
	}
	if fourth > 0 {
		m.varying = m.square * m.square / fourth
	}
	return m
}

// compare looks for passes that repeat, do not vary over the inputs, or are unlike the others.
func (d *data) compare(hashes []uint64) (signs []Sign) {
	s, n := d.sample(), d.Tensor.Passes
	if again := d.repeated(s, hashes); len(again) > 0 {
		signs = append(signs, ofPasses(signRepeatedPasses, again, n, "Passes repeat: only %d of %d are distinct, and %s %s earlier ones. Every pass needs "+
			"random numbers of its own: is the seed set again before each, or a member loaded twice?", n-len(again), n, listed(again),
			verb(again, "repeats", "repeat")))
	}
	constant := s.constant()
	if len(constant) > 0 {
		signs = append(signs, ofPasses(signConstantPasses, constant, n, "%s %s not vary over the inputs: it gives all %d the same probabilities, and the other "+
			"passes do not. Does this member see the inputs, and was it trained?", capital(listed(constant)), verb(constant, "does", "do"), d.Inputs))
	}
	others := make([]int, 0, n)
	for pass := range n {
		if !slices.Contains(constant, pass) {
			others = append(others, pass)
		}
	}
	foreign, typical := s.foreign(others)
	switch {
	case len(foreign) == 0:
	case len(foreign) == len(others):
		signs = append(signs, ofPasses(signForeignPasses, foreign, n, "The passes have nothing to do with each other: the median correlation of two is %.2f, "+
			"where passes over the same inputs have 0.5 and more. Is every pass over the same inputs, in one order, with the classes in one order, or is the model hardly trained?", typical))
	default:
		signs = append(signs, ofPasses(signForeignPasses, foreign, n, "%s %s unlike the others over these inputs (less than %.2g of the agreement of a "+
			"median pass). Are the inputs in the same order there, and the classes?", capital(listed(foreign)), verb(foreign, "is", "are"), leastAgreement))
	}
	return signs
}

func verb(passes []int, one, several string) string {
	if len(passes) == 1 {
		return one
	}
	return several
}

// constant returns the passes that are the same for all inputs. One-hot rows may be the same for all by
// chance: they are not, where the median pass calls enough inputs something else.
func (s *sample) constant() (passes []int) {
	typical := upperMedian(slices.Clone(s.varies))
	if s.inputs < fewVarying || typical == 0 {
		return nil
	}
	for pass, varies := range s.varies {
		if varies <= 1e-6*typical && (!s.votes[pass] || typical >= 2*decided) {
			passes = append(passes, pass)
		}
	}
	return passes
}

// leastAgreement is the share of a median pass's agreement with the others below which a pass is foreign.
// Genuine passes have at least 0.6 on 100 inputs (0.8 on 1,000); permuted classes and other orders at most 0.3.
const leastAgreement = 0.35

// foreign returns the passes, among some, that are unlike the others: in the probabilities of some class, or
// of all together, over the inputs. A pass agrees with the others as its upper median correlation with them
// says, which other foreign passes do not move as long as they are fewer. If even the typical agreement
// is none, all are foreign.
func (s *sample) foreign(passes []int) (foreign []int, typical float64) {
	const telling = 0.4 // typical agreement that some passes can fall short of
	if s.inputs < fewInputs || len(passes) < 2 {
		return nil, 0
	}
	var typicals, sizes []float64
	isForeign := make(map[int]bool)
	for column := range s.columns + 1 {
		varying, agreements := s.agreement(passes, column)
		if varying < fewVarying {
			continue
		}
		typical := upperMedian(slices.Clone(agreements))
		typicals, sizes = append(typicals, typical), append(sizes, varying)
		for at, pass := range passes {
			if typical >= telling && agreements[at] < leastAgreement*typical {
				isForeign[pass] = true
			}
		}
	}
	if len(typicals) == 0 {
		return nil, 0
	}
	none := min(0.25, 0.05+2/math.Sqrt(upperMedian(sizes))) // two deviations of a correlation of nothing
	if typical = upperMedian(typicals); typical < none {
		return passes, typical
	}
	for _, pass := range passes {
		if isForeign[pass] {
			foreign = append(foreign, pass)
		}
	}
	return foreign, typical
}

// agreement returns how far each pass agrees with the others in a column, or in all columns together for
// the column behind the last, and in how many inputs the typical pass varies there.
func (s *sample) agreement(passes []int, column int) (varying float64, agreements []float64) {
	from, end := column, column+1
	if column == s.columns {
		from, end = 0, s.columns
	}
	width := end - from
	centered := make([][]float32, len(passes)) // of length 1
	var inputs []float64
	for index, pass := range passes {
		v, square, fourth := make([]float32, s.inputs*width), 0., 0.
		for c := from; c < end; c++ {
			mean := s.moments(pass, c).mean
			for i := range s.inputs {
				v[i*width+c-from] = s.values[pass][i*s.columns+c] - float32(mean)
			}
		}
		for i := range s.inputs {
			sum := 0.
			for _, x := range v[i*width:][:width] {
				sum += float64(x) * float64(x)
			}
			square += sum
			fourth += sum * sum
		}
		if square > 0 {
			inputs = append(inputs, square*square/fourth)
			scale := float32(1 / math.Sqrt(square))
			for i := range v {
				v[i] *= scale
			}
		} else {
			inputs = append(inputs, 0)
		}
		centered[index] = v
	}
	agreements = make([]float64, len(passes))
	for index := range passes {
		var correlations []float64
		for _, other := range spread(len(passes), mostOthers+1) {
			if other != index && len(correlations) < mostOthers {
				correlations = append(correlations, dot(centered[index], centered[other]))
			}
		}
		agreements[index] = upperMedian(correlations)
	}
	return upperMedian(inputs), agreements
}

// repeated returns the passes that repeat earlier ones: bit for bit, or but for rounding noise.
func (d *data) repeated(s *sample, hashes []uint64) (again []int) {
	n := d.Tensor.Passes
	first := make([]int, n) // the first pass that each repeats
	seen, exact := make(map[uint64]int), false
	for pass, h := range hashes {
		f, before := seen[h]
		if !before {
			seen[h], f = pass, pass
		}
		first[pass] = f
		exact = exact || before
	}
	if exact && !d.unlikely(hashes) { // votes that happen to be the same
		for pass := range first {
			first[pass] = pass
		}
	}
	for _, pair := range s.nearPairs() {
		a, b := first[pair[0]], first[pair[1]]
		for pass, f := range first {
			if f == max(a, b) {
				first[pass] = min(a, b)
			}
		}
	}
	for pass, f := range first {
		if f != pass {
			again = append(again, pass)
		}
	}
	return again
}

// unlikely reports whether two passes that are equal for all inputs are so by a chance of less than one
// in a million, if the passes of an input were independent of each other. Then each input is a trial:
// of all pairs of passes it has a share that is equal there.
func (d *data) unlikely(hashes []uint64) bool {
	n := d.Tensor.Passes
	log, enough := 0., math.Log(1e-6)-math.Log(float64(n)*float64(n-1)/2)
	rows := make([]uint64, n)
	for i := range d.Inputs {
		for s := range rows {
			rows[s] = d.hash(s, i)
		}
		slices.Sort(rows)
		pairs, run := 0, 0
		for s := 1; s < n; s++ {
			if run++; rows[s] != rows[s-1] {
				run = 0
			}
			pairs += run
		}
		if log += math.Log(2 * float64(pairs) / (float64(n) * float64(n-1))); log < enough {
			return true
		}
	}
	return false
}

// nearPairs returns pairs of passes that differ by less than a tenth of what two passes usually do. No
// pair is found where few inputs vary over the passes.
func (s *sample) nearPairs() (pairs [][2]int) {
	const tenth = 0.1
	passes := len(s.values)
	mean := make([]float64, len(s.values[0]))
	for _, values := range s.values {
		for at, v := range values {
			mean[at] += float64(v) / float64(passes)
		}
	}
	square, fourth := 0., 0.
	for i := range s.inputs {
		ofInput := 0.
		for column := i * s.columns; column < (i+1)*s.columns; column++ {
			for _, values := range s.values {
				d := float64(values[column]) - mean[column]
				ofInput += d * d
			}
		}
		square += ofInput
		fourth += ofInput * ofInput
	}
	if passes < 3 || square*square < fewVarying*fourth || square == 0 {
		return nil
	}
	near := tenth * tenth * 2 * square / float64(passes-1) // of the mean squared distance of two passes
	for pass := range passes {
		for next := pass + 1; next < passes; next++ {
			distance := 0.
			for v, x := range s.values[pass] {
				d := float64(x - s.values[next][v])
				if distance += d * d; distance >= near { // as of nearly all pairs, after few values
					break
				}
			}
			if distance > 0 && distance < near {
				pairs = append(pairs, [2]int{pass, next})
			}
		}
	}
	return pairs
}

// spread returns at most most of n numbers from 0, evenly spaced.
func spread(n, most int) []int {
	most = min(n, most)
	numbers := make([]int, most)
	for i := range numbers {
		numbers[i] = i * n / most
	}
	return numbers
}

func dot(a, b []float32) float64 {
	sum := 0.
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// upperMedian sorts values and returns their median, the larger one of two.
func upperMedian(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
