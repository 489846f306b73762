package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

func FuzzStreamRequest(f *testing.F) {
	for i, data := range streamSeeds() {
		f.Add(data, uint64(0))
		f.Add(data, uint64(i+1))
	}
	f.Fuzz(func(t *testing.T, data []byte, cuts uint64) { checkStream(t, data, cuts) })
}

func FuzzUnaryRequest(f *testing.F) {
	for i, data := range unarySeeds() {
		f.Add(data, uint64(0))
		f.Add(data, uint64(i+1))
	}
	f.Fuzz(func(t *testing.T, data []byte, cuts uint64) { checkUnary(t, data, cuts) })
}

// TestStreamRequestOfPieces decodes messages of many pieces, most of them valid, which random bytes
// seldom are.
func TestStreamRequestOfPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := piecesOf(map[protowire.Number]string{1: "varint", 2: "varint", 3: "text", 4: "varints", 5: "varint", 6: "floats", 7: "bytes", 8: "context"})
		var data []byte
		for range rapid.SampledFrom([]int{1, 1, 1, 1, 0, 2, 3}).Draw(t, "messages") {
			message := slices.Concat(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces")...)
			field := rapid.SampledFrom([]protowire.Number{2, 2, 2, 2, 2, 1, 3}).Draw(t, "field")
			data = append(data, lengthDelimited(field, message)...)
		}
		checkStream(t, damaged(t, data), rapid.Uint64().Draw(t, "cuts"))
	})
}

func TestUnaryRequestOfPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := piecesOf(map[protowire.Number]string{
			1: "text", 2: "text", 3: "varint", 4: "varint", 5: "varint", 6: "varint", 7: "varint", 8: "text", 9: "floats", 10: "bytes", 11: "text", 12: "varint", 13: "varint", 14: "text", 15: "context",
		})
		data := slices.Concat(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces")...)
		checkUnary(t, damaged(t, data), rapid.Uint64().Draw(t, "cuts"))
	})
}

func TestDecodeSaysWhatWasExpected(t *testing.T) {
	in := received([]byte{0x12, 5, 1}, 0)
	for want, err := range map[string]error{
		"expected the bytes of a ckd.v1.DecomposeStreamRequest: ": new(StreamRequest).Decode(in),
		"expected the bytes of a ckd.v1.DecomposeRequest: ":       new(UnaryRequest).Decode(in),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	block := encoded(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{
		Group: 1 << 40, Passes: 30, InputIds: []string{"input-1", "input-2", "été"}, Rows: []uint32{0, 300, 2}, Final: true,
		Values: make([]float32, 30*64*4), Contexts: someContexts(),
	}}})
	unary := encoded(&ckdv1.DecomposeRequest{
		Model: "model", Classes: []string{"a", "b"}, Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 30, Inputs: 2,
		InputIds: []string{"input-1", "input-2"}, ValuesLe: make([]byte, 4*30*2*2), Posterior: "mc-dropout", ClassNames: proto.Bool(true),
		Receipts: ckdv1.Receipts_RECEIPTS_ALL, ModelVersion: "v1", Contexts: someContexts(),
	})
	dst := make([]float32, 7)
	var stream StreamRequest
	var request UnaryRequest
	for cuts := range uint64(40) {
		block, unary := cut(block, cuts), cut(unary, cuts)
		var in Incoming
		allocs := testing.AllocsPerRun(100, func() {
			if Codec.Unmarshal(Codec{}, block, &in) != nil || stream.Decode(&in) != nil || stream.Block == nil {
				t.Fatal("not decoded")
			}
			for v := &stream.Block.Values; v.Len() > 0; {
				v.Next(dst[:min(len(dst), v.Len())])
			}
			if Codec.Unmarshal(Codec{}, unary, &in) != nil || request.Decode(&in) != nil {
				t.Fatal("not decoded")
			}
			in.Free()
		})
		if allocs != 0 {
			t.Errorf("cuts %d: %v allocations", cuts, allocs)
		}
	}
}

// TestDecodeLetsGo checks that the memory of one large message is not kept forever.
func TestDecodeLetsGo(t *testing.T) {
	decode := func(r *StreamRequest, ids ...string) {
		b := &ckdv1.Block{InputIds: ids, Rows: make([]uint32, len(ids))}
		in := received(encoded(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}}), 0)
		if err := r.Decode(in); err != nil || r.Block.IDs.Len() != len(ids) {
			t.Fatal(err, r.Block.IDs.Len())
		}
	}
	var r StreamRequest
	decode(&r, slices.Repeat([]string{"an id"}, 2*kept)...)
	for range 2 {
		decode(&r, "a")
	}
	if n := cap(r.Block.IDs.bytes) + cap(r.Block.IDs.ends) + cap(r.Block.Rows); n > kept {
		t.Errorf("room for %d elements is kept", n)
	}
}

func TestNextBeyondTheEndPanics(t *testing.T) {
	v := valuesOf([]float32{1, 2}, nil)
	v.Next(make([]float32, 1))
	defer func() {
		if p := recover(); p != "wire: 2 values asked for, 1 are left" {
			t.Errorf("recovered %v", p)
		}
	}()
	v.Next(make([]float32, 2))
}

// failer has the methods that testing.T and rapid.T share.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// used returns a request that was decoded into before, with every field set.
func used() *StreamRequest {
	r := new(StreamRequest)
	b := &ckdv1.Block{Group: 9, Passes: 9, InputIds: []string{"x", "y"}, Rows: []uint32{9}, Final: true, Values: []float32{9}, Contexts: someContexts()}
	if err := r.Decode(received(encoded(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: b}}), 0)); err != nil {
		panic(err)
	}
	return r
}

func usedUnary() *UnaryRequest {
	r := new(UnaryRequest)
	if err := r.Decode(received(encoded(&ckdv1.DecomposeRequest{
		Model: "m", Classes: []string{"m", "é"}, Detail: 9, Kind: 9, Layout: 9, Passes: 9, Inputs: 9, InputIds: []string{"x"},
		ValuesLe: []byte{1, 2, 3, 4}, Posterior: "p", ClassNames: proto.Bool(true), Receipts: 9, ModelVersion: "v", Contexts: someContexts(),
	}), 0)); err != nil {
		panic(err)
	}
	return r
}

func checkStream(t failer, data []byte, cuts uint64) {
	t.Helper()
	var want ckdv1.DecomposeStreamRequest
	wantErr := proto.Unmarshal(data, &want)
	got, in := used(), received(data, cuts)
	if err := got.Decode(in); (err == nil) != (wantErr == nil) {
		t.Fatalf("%x: got error %v, the generated decoder's is %v", data, err, wantErr)
	}
	if wantErr != nil {
		return
	}
	if (got.Header != nil) != (want.GetHeader() != nil) || got.Header != nil && !proto.Equal(got.Header, want.GetHeader()) {
		t.Fatalf("%x: header %v, want %v", data, got.Header, want.GetHeader())
	}
	w := want.GetBlock()
	if (got.Block != nil) != (w != nil) {
		t.Fatalf("%x: block %v, want %v", data, got.Block, w)
	}
	if w == nil {
		return
	}
	b := got.Block
	checkValues(t, data, &b.Values, w.Values, w.ValuesLe, cuts)
	w.Values, w.ValuesLe = nil, nil
	w.ProtoReflect().SetUnknown(nil)
	dropUnknown(w.Contexts)
	rest := &ckdv1.Block{
		Group: b.Group, Passes: b.Passes, InputIds: textsOf(&b.IDs), Rows: b.Rows, Final: b.Final, Contexts: messagesOf(&b.Contexts),
	}
	if !proto.Equal(rest, w) {
		t.Fatalf("%x: got %v, want %v", data, rest, w)
	}
}

func checkUnary(t failer, data []byte, cuts uint64) {
	t.Helper()
	var want ckdv1.DecomposeRequest
	wantErr := proto.Unmarshal(data, &want)
	got := usedUnary()
	if err := got.Decode(received(data, cuts)); (err == nil) != (wantErr == nil) {
		t.Fatalf("%x: got error %v, the generated decoder's is %v", data, err, wantErr)
	}
	if wantErr != nil {
		return
	}
	checkValues(t, data, &got.Values, want.Values, want.ValuesLe, cuts)
	want.Values, want.ValuesLe, want.ClassNames = nil, nil, proto.Bool(want.GetClassNames())
	want.ProtoReflect().SetUnknown(nil)
	dropUnknown(want.Contexts)
	rest := &ckdv1.DecomposeRequest{
		Model: got.Model, Classes: got.Classes, Detail: got.Detail, Kind: got.Kind, Layout: got.Layout, Passes: got.Passes,
		Inputs: got.Inputs, InputIds: textsOf(&got.IDs), Posterior: got.Posterior, ClassNames: &got.ClassNames,
		Receipts: got.Receipts, ModelVersion: got.ModelVersion, Contexts: messagesOf(&got.Contexts),
	}
	if !proto.Equal(rest, &want) {
		t.Fatalf("%x: got %v, want %v", data, rest, &want)
	}
}

func textsOf(ids *IDs) (texts []string) {
	for i := range ids.Len() {
		texts = append(texts, string(ids.At(i)))
	}
	return texts
}

func messagesOf(contexts *Contexts) (messages []*ckdv1.InputContext) {
	for i := range contexts.Len() {
		x := contexts.At(i)
		m := &ckdv1.InputContext{Group: string(x.Group)}
		for name, value, ok := x.NextSlice(); ok; name, value, ok = x.NextSlice() {
			if m.Slices == nil {
				m.Slices = map[string]string{}
			}
			if _, twice := m.Slices[string(name)]; twice {
				value = []byte("the name comes twice")
			}
			m.Slices[string(name)] = string(value)
		}
		messages = append(messages, m)
	}
	return messages
}

func dropUnknown(contexts []*ckdv1.InputContext) {
	for _, x := range contexts {
		x.ProtoReflect().SetUnknown(nil)
	}
}

func checkValues(t failer, data []byte, v *Values, floats []float32, littleEndian []byte, seed uint64) {
	t.Helper()
	if v.Floats() != len(floats) || v.Bytes() != len(littleEndian) {
		t.Fatalf("%x: %d floats and %d bytes, want %d and %d", data, v.Floats(), v.Bytes(), len(floats), len(littleEndian))
	}
	want := littleEndian[:len(littleEndian)&^3]
	if len(floats) > 0 {
		want = nil
		for _, f := range floats {
			want = protowire.AppendFixed32(want, math.Float32bits(f))
		}
	}
	random := rand.New(rand.NewPCG(seed, 1))
	var got []byte
	for v.Len() > 0 {
		next := make([]float32, 1+random.IntN(min(v.Len(), 9)))
		v.Next(next)
		for _, f := range next {
			got = protowire.AppendFixed32(got, math.Float32bits(f))
		}
	}
	v.Next(nil)
	if !bytes.Equal(got, want) {
		t.Fatalf("%x: values are %x, want %x", data, got, want)
	}
}

// received returns a message that came in pieces; 0 means one piece.
func received(data []byte, cuts uint64) *Incoming {
	in := new(Incoming)
	if err := (Codec{}).Unmarshal(cut(data, cuts), in); err != nil {
		panic(err)
	}
	return in
}

// cut cuts bytes into pieces at random, some of them empty. The pieces do not
// lie side by side.
func cut(data []byte, cuts uint64) mem.BufferSlice {
	var pieces mem.BufferSlice
	random := rand.New(rand.NewPCG(cuts, 0))
	longest := 1 + random.IntN(20)
	for cuts != 0 && len(data) > 0 && len(pieces) < 100 {
		n := random.IntN(min(longest, len(data)) + 1)
		pieces, data = append(pieces, mem.SliceBuffer(bytes.Clone(data[:n]))), data[n:]
	}
	return append(pieces, mem.SliceBuffer(bytes.Clone(data)))
}

func encoded(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// lengthDelimited returns a field that holds bytes.
func lengthDelimited(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

// piecesOf makes fields of the kinds given, in usual and in other forms.
func piecesOf(kinds map[protowire.Number]string) *rapid.Generator[[]byte] {
	numbers := make([]protowire.Number, 0, len(kinds))
	for n := range kinds {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return rapid.Custom(func(t *rapid.T) []byte {
		number := rapid.SampledFrom(numbers).Draw(t, "number")
		kind := kinds[number]
		if rapid.IntRange(0, 19).Draw(t, "odd") == 0 {
			kind = rapid.SampledFrom([]string{"varint", "text", "fixed32", "fixed64", "group", "end", "raw", "unknown", "tag"}).Draw(t, "kind")
		}
		tag := func(typ protowire.Type) []byte { return protowire.AppendTag(nil, number, typ) }
		varint := func() []byte {
			v := rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64()).Draw(t, "varint")
			return overlong(protowire.AppendVarint(nil, v), rapid.SampledFrom([]int{0, 0, 0, 1, 4, 10}).Draw(t, "overlong"))
		}
		switch kind {
		case "varint":
			return append(tag(protowire.VarintType), varint()...)
		case "varints":
			if rapid.Bool().Draw(t, "unpacked") {
				return append(tag(protowire.VarintType), varint()...)
			}
			var all []byte
			for range rapid.IntRange(0, 4).Draw(t, "count") {
				all = append(all, varint()...)
			}
			return lengthDelimited(number, all[:len(all)-min(len(all), rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "short"))])
		case "floats":
			if rapid.IntRange(0, 9).Draw(t, "unpacked") == 0 {
				return protowire.AppendFixed32(tag(protowire.Fixed32Type), rapid.Uint32().Draw(t, "float"))
			}
			n := 4*rapid.IntRange(0, 40).Draw(t, "count") + rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 0, 0, 1}).Draw(t, "more")
			return lengthDelimited(number, rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "floats"))
		case "context":
			piece := piecesOf(map[protowire.Number]string{1: "text", 2: "slice"})
			return lengthDelimited(number, slices.Concat(rapid.SliceOfN(piece, 0, 4).Draw(t, "context")...))
		case "slice":
			piece := piecesOf(map[protowire.Number]string{1: "text", 2: "text"})
			return lengthDelimited(number, slices.Concat(rapid.SliceOfN(piece, 0, 3).Draw(t, "slice")...))
		case "text":
			return lengthDelimited(number, []byte(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"m", "p", "é", "", "\xff", "\xc3"})).Draw(t, "text")))
		case "bytes":
			return lengthDelimited(number, rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "bytes"))
		case "fixed32":
			return protowire.AppendFixed32(tag(protowire.Fixed32Type), 7)
		case "fixed64":
			return protowire.AppendFixed64(tag(protowire.Fixed64Type), 7)
		case "group":
			return protowire.AppendGroup(tag(protowire.StartGroupType), number, protowire.AppendVarint(protowire.AppendTag(nil, 1, 0), 1))
		case "end":
			return tag(protowire.EndGroupType)
		case "unknown":
			n := protowire.Number(rapid.SampledFrom([]int{0, 12, 16, 17, 100, 1<<29 - 1, 1 << 29}).Draw(t, "unknown"))
			return append(protowire.AppendVarint(nil, uint64(n)<<3), 1)
		case "tag":
			return append(overlong(tag(protowire.VarintType), 1), varint()...)
		default:
			return rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "raw")
		}
	})
}

// overlong pads a varint.
func overlong(b []byte, n int) []byte {
	for range n {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

// damaged draws a message that may be cut short or changed.
func damaged(t *rapid.T, data []byte) []byte {
	if len(data) == 0 {
		return data
	}
	switch rapid.IntRange(0, 19).Draw(t, "damage") {
	case 0:
		return data[:rapid.IntRange(0, len(data)-1).Draw(t, "end")]
	case 1:
		data[rapid.IntRange(0, len(data)-1).Draw(t, "changed")] = rapid.Byte().Draw(t, "to")
	}
	return data
}

func streamSeeds() [][]byte {
	header := encoded(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: &ckdv1.StreamHeader{
		Model: "m", Classes: []string{"a", "b"}, Passes: 3, Detail: 7, Posterior: "p",
	}}})
	whole := encoded(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Block{Block: &ckdv1.Block{
		Group: 1 << 60, Passes: 2, InputIds: []string{"one", "", "drei é"}, Rows: []uint32{0, 1, 1 << 31}, Final: true,
		Values: []float32{0.25, 0.75, float32(math.NaN()), float32(math.Copysign(0, -1))}, Contexts: someContexts(),
	}}})
	block := func(parts ...[]byte) []byte { return lengthDelimited(2, slices.Concat(parts...)) }
	slice := lengthDelimited(2, slices.Concat(lengthDelimited(1, []byte("a")), lengthDelimited(2, []byte("b"))))
	floats, bits := lengthDelimited(6, []byte{0, 0, 0x80, 0x3f, 1, 0, 0xc0, 0x7f}), lengthDelimited(7, []byte{1, 2, 3, 4})
	return [][]byte{
		nil, header, whole, slices.Concat(header, whole), slices.Concat(whole, header), slices.Concat(whole, whole), whole[:len(whole)-1],
		slices.Concat(whole, []byte{0x10, 1}), slices.Concat(whole, []byte{0x1a, 1, 'x'}), // what would be fields of a block
		{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {0x12, 0x80}, {0x13, 0x14},
		block(lengthDelimited(4, []byte{0x80}), []byte{0x10, 0x08, 1}),                                // a row that ends in the next field
		block(lengthDelimited(4, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 7})), // truncated to 32 bits
		block(lengthDelimited(4, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2})),    // overflows
		block(floats, bits), block(bits, floats), block(floats, floats), block(bits, bits), block([]byte{0x28, 2}),
		block(lengthDelimited(3, []byte{0xff})), block(lengthDelimited(3, []byte("é")[:1]), lengthDelimited(3, []byte("é")[1:])),
		block(lengthDelimited(8, slices.Concat(slice, slice))), block(lengthDelimited(8, lengthDelimited(1, []byte{0xff}))), block(lengthDelimited(8, slice[:4])),
	}
}

func someContexts() []*ckdv1.InputContext {
	return []*ckdv1.InputContext{{Group: "g", Slices: map[string]string{"site": "north", "": ""}}, {}, {Slices: map[string]string{"scanner": "é"}}}
}

func unarySeeds() [][]byte {
	whole := encoded(&ckdv1.DecomposeRequest{
		Model: "model", Classes: []string{"a", "é", ""}, Detail: -1, Kind: 3, Layout: 100, Passes: 3, Inputs: 2, InputIds: []string{"x", ""},
		Values: []float32{1, 2, 3}, Posterior: "mc-dropout", ClassNames: proto.Bool(true),
		Receipts: -1, ModelVersion: "v", Contexts: someContexts(),
	})
	bytesForm := encoded(&ckdv1.DecomposeRequest{Model: "m", ValuesLe: []byte{1, 2, 3, 4, 5, 6, 7, 8}})
	return [][]byte{nil, whole, bytesForm, slices.Concat(whole, whole), slices.Concat(whole, bytesForm), whole[:len(whole)-1], {0x60, 2}}
}
