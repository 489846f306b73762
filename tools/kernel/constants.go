package main

import (
	"math"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"   //nolint:revive,staticcheck // avo's programs read as assembly
	. "github.com/mmcloughlin/avo/operand" //nolint:revive,staticcheck // the same
)

// These are the constants of scalar.go. TestVersionsAgree fails if they differ.
var (
	numbers = map[string]float64{
		"tiny":    0x1p-1000,
		"narrow":  0x1p-40,
		"shift":   1 + 1./32,
		"one":     1,
		"two":     2,
		"three":   3,
		"half":    0.5,
		"3/8":     0.375,
		"-sixth":  -1. / 6,
		"epsilon": 1e-10,
		"ln2":     math.Ln2,
	}

	remainder = []float64{
		0.5000000000000009,
		-0.1666666666678504,
		0.08333333330997438,
		-0.049999989737007505,
		0.033333413809976155,
		-0.023831832549191252,
		0.017797558976899948,
	}

	logs = [16]float64{
		0,
		0.06062462181643484,
		0.11778303565638346,
		0.17185025692665923,
		0.22314355131420976,
		0.27193371548364176,
		0.3184537311185346,
		0.3629054936893685,
		0.4054651081081644,
		0.44628710262841953,
		0.4855078157817008,
		0.5232481437645479,
		0.5596157879354227,
		0.5947071077466928,
		0.6286086594223741,
		0.6613984822453650,
	}
)

// words holds constants that are bit patterns.
var words = map[string]uint64{
	"floatOne":      0x3f8000003f800000, // two float32
	"floatAbsolute": 0x7fffffff7fffffff,
	"steps":         ^uint64(1<<48 - 1), // the bits of a float64 that a step of the logarithm keeps
	"absolute":      1<<63 - 1,
	"guess":         0x5fe6eb50c7b537a9, // rootGuess
	"step":          0xf,                // the bits of the step's number
	"2^52":          0x4330000000000000, // a float64 whose last bits count ones
	"2^52+":         math.Float64bits(0x1p52 + 1023),
}

var placed = map[string]Mem{}

// constant returns the address of a register full of the constant.
func constant(name string) Mem {
	return place(name, 8, func(lane int) uint64 {
		switch {
		case name == "iota":
			return uint64(lane)
		case name == "floatIota":
			return uint64((2*lane+1)<<32 | 2*lane)
		case words[name] != 0:
			return words[name]
		case numbers[name] != 0:
			return math.Float64bits(numbers[name])
		}
		panic("no constant " + name)
	})
}

// coefficient returns the address of a register full of remainder[i].
func coefficient(i int) Mem {
	name := "remainder" + string(rune('0'+i))
	numbers[name] = remainder[i]
	return constant(name)
}

// logTable and inverseTable return the addresses of the tables for the wide machine, two registers
// each. The inverse of the step c = 1+j/16 is bits(1/c) + bits(c).
func logTable() Mem {
	return place("logs", len(logs), func(j int) uint64 { return math.Float64bits(logs[j]) })
}

func inverseTable() Mem {
	return place("inverses", len(logs), func(j int) uint64 {
		c := 1 + float64(j)/16
		return math.Float64bits(1/c) + math.Float64bits(c)
	})
}

// symbols replaces what the name of a symbol cannot have.
var symbols = strings.NewReplacer("-", "minus_", "^", "_to_", "/", "_over_", "+", "_bias")

// place returns the address of n words, which it puts into the file when first asked.
func place(name string, n int, word func(i int) uint64) Mem {
	if _, ok := placed[name]; !ok {
		placed[name] = GLOBL("const_"+symbols.Replace(name), attr.RODATA|attr.NOPTR)
		for i := range n {
			DATA(8*i, U64(word(i)))
		}
	}
	return placed[name]
}
