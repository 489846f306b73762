package kernel

type versionName struct{}

func (versionName) String() string { return "scalar" }

var version versionName

func vectorMoments[T Float](*Columns, []T, int, int, int, float64) bool       { return false }
func vectorDeviations[T Float]([]float64, []T, int, int, int, []float64) bool { return false }
func vectorProducts(_, _, _ []float64, _, _, _ int) bool                      { return false }
func vectorScaled(_, _, _ []float64, _, _, _ int) bool                        { return false }
func vectorPlain(rows []float32, classes int, tolerance float64) bool {
	for at := 0; at < len(rows); at += classes {
		sum := 0.0
		for _, v := range rows[at : at+classes] {
			if !(v >= 0 && v <= 1) {
				return false
			}
			sum += float64(v)
		}
		if sum-1 > tolerance || 1-sum > tolerance {
			return false
		}
	}
	return true
}
