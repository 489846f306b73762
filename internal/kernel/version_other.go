//go:build !amd64 || purego

package kernel

// best returns the variant for this processor.
func best() variant { return scalar }

func vectorMoments[T float](*Columns, []T, int, int, int, float64) bool { return false }

func vectorRotated[T float]([]float64, int, []T, int, int, int, int, []float64) bool { return false }

func vectorDeviations[T float]([]float64, int, *Part[T]) bool { return false }

func vectorCrossed[T float]([]float64, int, *Part[T], []float64, int, int, bool) bool { return false }

func vectorPlain(rows []float32, classes int, tolerance float64) bool {
	return scalarPlain(rows, classes, tolerance)
}

func vectorInverseRoots(_, _ []float64) bool { return false }

func vectorConfusions(_, _ []float64, _ *Matrix) bool { return false }

func vectorSum(_ *[lanes]float64, _ []float64) int { return 0 }
