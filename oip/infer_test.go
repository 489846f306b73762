package oip_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/ckd-project/ckd/decomp"
	"github.com/ckd-project/ckd/engine"
	"github.com/ckd-project/ckd/internal/servertest"
	"github.com/ckd-project/ckd/policy"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// spread turns probabilities into concentrations.
func spread(x float32) float32 { return 40*x + 0.25 }

// TestEqualToNative checks that all kinds, layouts, types and encodings give what the native
// service gives for the same values, to the last bit.
func TestEqualToNative(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	passes := ctg(t, 150)
	for model, values := range map[string]tensor{
		"ctg":        passes,
		"risky":      passes,
		"logits":     passes.mapped(func(x float32) float32 { return 7 * (x - 0.5) }),
		"evidential": {150, 1, 3, ctg(t, 150).mapped(spread).values[:450]},
	} {
		for _, form := range []string{"typed FP32", "FP32", "FP16", "BF16"} {
			values := values
			switch {
			case form == "BF16":
				values = values.mapped(asBrain)
			case form == "FP16" && model != "ctg" && model != "risky":
				continue // asHalf is for probabilities
			case form == "FP16":
				values = values.mapped(asHalf)
			}
			native := values.native(t, h, model)
			for _, layout := range []string{"", "NSK", "SNK"} {
				t.Run(fmt.Sprint(model, form, layout), func(t *testing.T) {
					request := ask(values.request(model, layout, form), allOutputs...)
					compare(t, read(t, h.infer(t, request)), native, classesOf[model])
				})
			}
		}
	}
}

// native asks the native service for everything.
func (v tensor) native(t testing.TB, h *harness, model string) []*ckdv1.Result {
	t.Helper()
	response, err := h.native.Decompose(context.Background(), &ckdv1.DecomposeRequest{
		Model: model, Detail: ckdv1.Detail_DETAIL_FULL, Layout: ckdv1.Layout_LAYOUT_NSK,
		Passes: uint32(v.passes), Inputs: uint32(v.inputs), Values: v.values,
	})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetResults()
}

// compare checks every output against the native results.
func compare(t tester, a answer, native []*ckdv1.Result, classes []string) {
	t.Helper()
	number := func(name string, i int, want float64) {
		t.Helper()
		if got := a.numbers(name)[i]; math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%s[%d] is %v, want %v", name, i, got, want)
		}
	}
	for i, r := range native {
		d := r.GetDecomposition()
		decided := d.GetDecision()
		for name, want := range map[string][]float64{
			"c": d.GetC(), "skewness": d.GetSkewness(), "mean": d.GetMean(), "variance": d.GetVariance(), "m": d.GetM(),
		} {
			if len(want) != 3 || len(a.numbers(name)) != 3*len(native) {
				t.Errorf("%s: %d classes, %d numbers", name, len(want), len(a.numbers(name)))
				return
			}
			for k, v := range want {
				number(name, 3*i+k, v)
			}
		}
		for name, want := range map[string]float64{
			"mi": d.GetMi(), "entropy": d.GetEntropy(), "sum_c": d.GetSumC(), "score": decided.GetValue(),
		} {
			number(name, i, want)
		}
		if want := decided.Threshold; want != nil {
			number("threshold", i, *want)
		} else if got := a.numbers("threshold")[i]; !math.IsNaN(got) {
			t.Errorf("threshold[%d] is %v, want NaN", i, got)
		}
		for name, want := range map[string]*float64{"risk": d.Risk, "priority": d.Priority, "priority_percentile": d.PriorityPercentile} {
			if want != nil {
				number(name, i, *want)
			} else if got := a.numbers(name)[i]; !math.IsNaN(got) {
				t.Errorf("%s[%d] is %v, want NaN", name, i, got)
			}
		}
		class := int64(-1)
		if decided.DecidingClass != nil {
			class = int64(decided.GetDecidingClass())
		}
		got := []any{
			a.truths("defer")[i], a.integers("deciding_class")[i], a.texts("reason")[i], a.truths("degenerate")[i], a.texts("decision")[i],
			a.integers("predicted")[i], a.texts("predicted_class")[i],
		}
		want := []any{
			decided.GetAction() == ckdv1.Action_ACTION_DEFER, class,
			strings.ToLower(strings.TrimPrefix(decided.GetReason().String(), "DECISION_REASON_")), d.GetDegenerate(),
			strings.ToLower(strings.TrimPrefix(decided.GetAction().String(), "ACTION_")),
			int64(d.GetPredicted()), classes[d.GetPredicted()],
		}
		if !slices.Equal(got, want) {
			t.Errorf("input %d: %v, want %v", i, got, want)
		}
	}
}

// TestDouble checks that float64 values are computed as float64, which the native service lacks, by
// what the engine returns for them.
func TestDouble(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(testPolicies)})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range set.All() {
		if p.Name != "ctg" {
			continue
		}
		model, err := engine.New(p)
		if err != nil {
			t.Fatal(err)
		}
		passes := ctg(t, 100)
		double := make([]float64, 0, len(passes.values))
		for _, row := range slices.Collect(slices.Chunk(passes.values, 3)) {
			sum := float64(row[0]) + float64(row[1]) + float64(row[2])
			for _, x := range row {
				double = append(double, float64(x)/sum) // no float32 has these digits
			}
		}
		batch, outcome := model.NewBatch(), model.NewOutcome()
		if err := batch.Reset(decomp.Tensor{Passes: passes.passes, Inputs: 100, Layout: decomp.NSK, Float64: double}); err != nil {
			t.Fatal(err)
		}
		typed := ask(passes.request("ctg", "", "typed FP64"), "c", "mi")
		typed.Inputs[0].Contents.Fp64Contents = double
		raw := ask(passes.request("ctg", "", "FP64"), "c", "mi")
		raw.RawInputContents[0] = nil
		for _, x := range double {
			raw.RawInputContents[0] = le64(raw.RawInputContents[0], x)
		}
		for _, request := range []*pb.ModelInferRequest{typed, raw} {
			a := read(t, h.infer(t, request))
			for i := range 100 {
				if err := batch.Outcome(i, outcome); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(a.numbers("c")[3*i:3*i+3], outcome.C) || a.numbers("mi")[i] != outcome.MI {
					t.Errorf("input %d: %v, want %v", i, a.numbers("c")[3*i:3*i+3], outcome.C)
				}
			}
		}
	}
}

// TestRounding checks that rows which a client truncated or rounded to 16 bits may miss the sum by
// the policy's tolerance plus the error of the type, and no more; and that other types get the
// policy's tolerance alone.
func TestRounding(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	passes := ctg(t, 200)
	for form, rounded := range map[string][]func(float32) float32{
		"BF16": {asBrain, func(x float32) float32 { return asBrain(nearest(x, 16)) }},
		"FP16": {asHalf, func(x float32) float32 { return asHalf(nearest(x, 13)) }},
	} {
		for _, round := range rounded {
			values := passes.mapped(round)
			for i, said := range read(t, h.infer(t, ask(values.request("tolerance", "", form), "error"))).texts("error") {
				if said != "" {
					t.Errorf("%s: input %d: %s", form, i, said)
				}
			}
			_, err := h.client.ModelInfer(t.Context(), values.request("tolerance", "", "FP32"))
			if form == "BF16" && !strings.Contains(fmt.Sprint(err), "expected 1 within 0.001 (rounded? send float32") {
				t.Errorf("the same rows as FP32: %v", err)
			}
		}
	}
	for _, c := range []struct {
		form string
		off  float64
		want string // of the error; empty: taken
	}{
		{"BF16", 0x1p-7 + 0x1p-10, ""},
		{"BF16", 0x1p-7 + 0x1p-9, "expected 1 within 0.0088125 (0.001, and 0.0078125 for the rounding of the values)"},
		{"FP16", 0x1p-9, ""},
		{"FP16", 0x1p-9 + 0x1p-12, "expected 1 within 0.00197656 (0.001, and 0.0009765625 for the rounding of the values)"},
		{"FP32", 0x1p-10, ""},
		{"FP32", 0x1p-9, "expected 1 within 0.001"},
		{"FP64", 0x1p-9, "expected 1 within 0.001"},
	} {
		for _, off := range []float64{c.off, -c.off} {
			t.Run(fmt.Sprintf("%s, off by %v", c.form, off), func(t *testing.T) {
				last := float32(0.25 - off) // exact in each type
				request := tensor{1, 2, 3, []float32{0.5, 0.25, 0.25, 0.5, 0.25, last}}.request("tolerance", "", c.form)
				_, err := h.client.ModelInfer(t.Context(), request)
				if c.want == "" && err != nil {
					t.Error(err)
				}
				if c.want != "" && !strings.Contains(fmt.Sprint(err), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
			})
		}
	}
}

// TestDefaults checks the outputs for a request that names none.
func TestDefaults(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	for _, form := range []string{"FP32", "typed FP32"} {
		request := ctg(t, 2).request("ctg", "", form)
		request.Id, request.ModelVersion = "a request", "v1"
		response := h.infer(t, request)
		read(t, response)
		var names []string
		for _, o := range response.GetOutputs() {
			names = append(names, o.GetName())
			if !slices.Equal(o.GetShape(), []int64{2}) {
				t.Errorf("%s: shape %v", o.GetName(), o.GetShape())
			}
		}
		if want := allOutputs[5:17]; !slices.Equal(names, want) {
			t.Errorf("outputs %v, want %v", names, want)
		}
		if len(response.GetRawOutputContents()) != len(names) {
			t.Errorf("%s is not answered raw", form)
		}
		model, err := h.native.GetModel(t.Context(), &ckdv1.GetModelRequest{Model: "ctg"})
		if err != nil {
			t.Fatal(err)
		}
		if response.GetId() != "a request" || response.GetModelName() != "ctg" || response.GetModelVersion() != "v1" ||
			response.GetParameters()["policy_hash"].GetStringParam() != model.GetModel().GetPolicy().GetHash() {
			t.Errorf("got %v", response)
		}
	}
}

// truth returns a parameter with a boolean.
func truth(value bool) *pb.InferParameter {
	return &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: value}}
}

// TestForm checks that answers are raw, whatever form the request has, unless it asks for typed
// contents.
func TestForm(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	native := ctg(t, 20).native(t, h, "ctg")
	for _, form := range []string{"FP32", "typed FP32"} {
		for name, asked := range map[string]*pb.InferParameter{"nothing asked": nil, "contents": truth(false), "raw": truth(true)} {
			t.Run(form+" "+name, func(t *testing.T) {
				request := ask(ctg(t, 20).request("ctg", "", form), allOutputs...)
				if asked != nil {
					request.Parameters["binary_data_output"] = asked
				}
				response := h.infer(t, request)
				compare(t, read(t, response), native, classesOf["ctg"])
				raw := name != "contents"
				for i, o := range response.GetOutputs() {
					if raw != (o.GetContents() == nil) || raw != (i < len(response.GetRawOutputContents())) {
						t.Errorf("%s has contents %v, of %d raw", o.GetName(), o.GetContents() != nil, len(response.GetRawOutputContents()))
					}
				}
			})
		}
	}
}

// before puts another tensor before all others, of three bytes if the request is raw.
func before(r *pb.ModelInferRequest, name string) *pb.ModelInferRequest {
	r.Inputs = slices.Insert(r.Inputs, 0, &pb.ModelInferRequest_InferInputTensor{Name: name, Datatype: "BOOL", Shape: []int64{3}})
	if len(r.RawInputContents) > 0 {
		r.RawInputContents = slices.Insert(r.RawInputContents, 0, []byte{1, 0, 1})
	}
	return r
}

// TestHandedThrough checks that other tensors than the passes come back as they were, except those
// with the name of an output of ckd, and only if the request names them or names no outputs.
func TestHandedThrough(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	type other struct {
		name, datatype string
		typed          *pb.InferTensorContents
		raw            string
	}
	label := other{"label", "BYTES", &pb.InferTensorContents{BytesContents: [][]byte{[]byte("a"), {}, []byte("\xff")}}, "\x01\x00\x00\x00a\x00\x00\x00\x00\x01\x00\x00\x00\xff"}
	pixels := other{"pixels", "UINT8", &pb.InferTensorContents{UintContents: []uint32{1, 255}}, "\x01\xff"}
	mean := other{"mean", "FP32", &pb.InferTensorContents{Fp32Contents: []float32{1}}, "\x00\x00\x80\x3f"} // an output of ours that is no default
	half := other{"half", "FP16", nil, "abc"}                                                              // no whole number of elements
	for name, c := range map[string]struct {
		form   string
		others []other // before the passes
		typed  bool    // is asked for
		asked  []string
		want   []other
		raw    bool // the answer
	}{
		"typed":                {form: "typed FP32", others: []other{label, mean, pixels, label}, want: []other{label, pixels, label}, raw: true},
		"typed for raw":        {form: "FP32", others: []other{pixels, label}, typed: true, want: []other{pixels, label}},
		"without a typed form": {form: "FP32", others: []other{label, half}, typed: true, want: []other{label, half}, raw: true},
		"by name":              {form: "FP32", others: []other{label, mean, half}, asked: []string{"half", "decision", "c", "label"}, want: []other{half, label}, raw: true},
	} {
		t.Run(name, func(t *testing.T) {
			request := ask(ctg(t, 3).request("ctg", "", c.form), c.asked...)
			request.Parameters["binary_data_output"] = truth(!c.typed)
			for _, o := range slices.Backward(c.others) {
				tensor := &pb.ModelInferRequest_InferInputTensor{
					Name: o.name, Datatype: o.datatype, Shape: []int64{3, 7}, Parameters: map[string]*pb.InferParameter{"content_type": text("str")},
				}
				if c.form == "FP32" {
					request.RawInputContents = slices.Insert(request.RawInputContents, 0, []byte(o.raw))
				} else {
					tensor.Contents = o.typed
				}
				request.Inputs = slices.Insert(request.Inputs, 0, tensor)
			}
			response := h.infer(t, request)
			want := &pb.ModelInferResponse{}
			for _, o := range c.want {
				tensor := &pb.ModelInferResponse_InferOutputTensor{
					Name: o.name, Datatype: o.datatype, Shape: []int64{3, 7}, Parameters: map[string]*pb.InferParameter{"content_type": text("str")},
				}
				if c.raw {
					want.RawOutputContents = append(want.RawOutputContents, []byte(o.raw))
				} else {
					tensor.Contents = o.typed
				}
				want.Outputs = append(want.Outputs, tensor)
			}
			got := &pb.ModelInferResponse{}
			for i, o := range response.GetOutputs() {
				if len(c.asked) > 0 && o.GetName() != c.asked[i] {
					t.Errorf("output %d is %s, want %s", i, o.GetName(), c.asked[i])
				}
				if slices.Contains(allOutputs, o.GetName()) {
					continue
				}
				if got.Outputs = append(got.Outputs, o); c.raw {
					got.RawOutputContents = append(got.RawOutputContents, response.GetRawOutputContents()[i])
				}
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || (len(response.GetRawOutputContents()) > 0) != c.raw {
				t.Errorf("raw %v:\n%s", len(response.GetRawOutputContents()) > 0, diff)
			}
		})
	}
}

// TestHandedBytes checks that tensors handed through count in the budget of open bytes.
func TestHandedBytes(t *testing.T) {
	limits := server.DefaultLimits()
	limits.OpenInputBytes, limits.MessageBytes = 1<<20, 2<<20
	h := newHarness(t, limits)
	request := before(ctg(t, 1).request("ctg", "", "FP32"), "image")
	for _, c := range []struct {
		bytes int
		want  string // the reason of the error
	}{{100_000, ""}, {1 << 20, "OUT_OF_MEMORY_BUDGET"}, {100_000, ""}} {
		request.RawInputContents[0] = make([]byte, c.bytes)
		_, err := h.client.ModelInfer(t.Context(), request)
		if c.want == "" && err != nil {
			t.Errorf("%d bytes: %v", c.bytes, err)
		}
		if c.want != "" {
			if servertest.FaultOf(err).Reason != c.want {
				t.Errorf("%d bytes: %v, want %s", c.bytes, err, c.want)
			}
		}
	}
}

// TestTensor checks that the passes are read from the tensor that the policy names, and that a
// reload that changes nothing but this name takes effect.
func TestTensor(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	infer := func(name string) error {
		request := before(ctg(t, 2).request("graph", "", "FP32"), "passes")
		request.Inputs[1].Name = name
		response, err := h.client.ModelInfer(t.Context(), request)
		if err == nil && (!slices.Equal(read(t, response).texts("predicted_class"), []string{"pathologic", "normal"}) ||
			response.GetOutputs()[len(response.GetOutputs())-1].GetName() != "passes") {
			t.Errorf("%s: %v", name, response)
		}
		return err
	}
	if err := infer("dense/Softmax:0"); err != nil {
		t.Error(err)
	}
	metadata, err := h.client.ModelMetadata(t.Context(), &pb.ModelMetadataRequest{Name: "graph"})
	if err != nil || metadata.GetInputs()[0].GetName() != "dense/Softmax:0" {
		t.Errorf("metadata %v, %v", metadata, err)
	}
	config, err := h.client.ModelConfig(t.Context(), &pb.ModelConfigRequest{Name: "graph"})
	if err != nil || config.GetConfig().GetInput()[0].GetName() != "dense/Softmax:0" {
		t.Errorf("config %v, %v", config, err)
	}
	set, err := policy.Parse(policy.File{Name: "test.yaml", Data: []byte(strings.Replace(testPolicies, "dense/Softmax:0", "probs", 1))})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.server.SetPolicies(set); err != nil {
		t.Fatal(err)
	}
	if err := infer("probs"); err != nil {
		t.Error(err)
	}
	if err := infer("dense/Softmax:0"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("by its former name: %v", err)
	}
	if h.server.Tensor("graph") != "probs" || h.server.Tensor("nobody") != "passes" {
		t.Errorf("the server says %s", h.server.Tensor("graph"))
	}
}

// TestObserving checks that a policy without thresholds defers nothing and reports none.
func TestObserving(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	a := read(t, h.infer(t, tensor{1, 2, 2, []float32{0.5, 0.5, 0.25, 0.75}}.request("observed", "", "typed FP32")))
	if a.truths("defer")[0] || a.texts("decision")[0] != "observe" || a.texts("reason")[0] != "observing" || !math.IsNaN(a.numbers("threshold")[0]) {
		t.Errorf("got %v", a)
	}
}

// TestBadRow checks that a bad row refuses the whole request, unless it asks for the output error:
// then its input is deferred.
func TestBadRow(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	passes := ctg(t, 5)
	passes.values[(1*30+7)*3+2] = float32(math.NaN())
	passes.values[(3*30+2)*3] = -1
	for _, layout := range []string{"NSK", "SNK"} {
		_, err := h.client.ModelInfer(t.Context(), passes.request("ctg", layout, "FP32"))
		got := servertest.FaultOf(err)
		if status.Code(err) != codes.InvalidArgument || got.Reason != "NOT_FINITE" || got.Field != "inputs[1].passes[7].classes[2]" ||
			got.Metadata["class_name"] != "pathologic" || !strings.Contains(err.Error(), "input 1: pass 7: class 2 is NaN, expected a finite number") {
			t.Errorf("%v: %v, %+v", layout, err, got)
		}
	}
	h.eventually(t, 2, "ckd_inputs_rejected_total", "model", "ctg", "reason", "not_finite")
	h.eventually(t, 2, "ckd_inputs_rejected_total", "model", "ctg", "reason", "negative")
	h.eventually(t, 4, "ckd_inputs_rejected_total")
	h.eventually(t, 0, "ckd_decisions_total")
	h.eventually(t, 0, "ckd_passes_total")

	native := passes.native(t, h, "ctg")
	before := servertest.Sum(t, h.registry, "ckd_decisions_total")
	a := read(t, h.infer(t, ask(passes.request("ctg", "", "FP32"), append([]string{"error"}, allOutputs...)...)))
	for i, why := range []string{"", "not_finite", "", "negative", ""} {
		if why == "" {
			if a.texts("error")[i] != "" || a.numbers("mi")[i] != native[i].GetDecomposition().GetMi() {
				t.Errorf("input %d: %q, %v", i, a.texts("error")[i], a.numbers("mi")[i])
			}
			continue
		}
		if got := a.texts("error")[i]; got != native[i].GetError().GetMessage() || got == "" {
			t.Errorf("input %d: error %q, want %q", i, got, native[i].GetError().GetMessage())
		}
		if !a.truths("defer")[i] || a.texts("decision")[i] != "defer" || a.texts("reason")[i] != why || a.integers("deciding_class")[i] != -1 || a.integers("predicted")[i] != -1 || a.texts("predicted_class")[i] != "" || a.truths("degenerate")[i] {
			t.Errorf("input %d is not deferred: %v %v %v", i, a.truths("defer")[i], a.texts("decision")[i], a.texts("reason")[i])
		}
		for name := range a {
			numbers := a.numbers(name)
			each := len(numbers) / 5
			for _, x := range numbers[i*each : (i+1)*each] {
				if !math.IsNaN(x) {
					t.Errorf("%s[%d] is %v, want NaN", name, i, x)
				}
			}
		}
	}
	h.eventually(t, before+3, "ckd_decisions_total")
}

// TestCalibration checks that inputs which differ from the calibration are counted as over ckd.v1.
func TestCalibration(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	request := ctg(t, 4).request("ctg", "", "FP32")
	request.Parameters["posterior"] = text("ensemble")
	if _, err := h.client.ModelInfer(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, 4, "ckd_calibration_mismatches_total", "model", "ctg", "what", "posterior")
	h.eventually(t, 0, "ckd_calibration_mismatches_total", "model", "ctg", "what", "passes")
}

// TestRefusals checks the full text of refusals.
func TestRefusals(t *testing.T) {
	limits := server.DefaultLimits()
	limits.InputsPerRequest, limits.PassesPerInput, limits.ReplyBytes, limits.OpenInputBytes = 100, 1000, 4096, 1<<19
	h := newHarness(t, limits)
	type request = pb.ModelInferRequest
	parameter := func(name string, p *pb.InferParameter) func(*request) {
		return func(r *request) { r.Parameters[name] = p }
	}
	long := strings.Repeat("x", 5000)
	for name, c := range map[string]struct {
		form   string
		change func(*request)
		code   codes.Code
		reason string
		field  string
		text   string
	}{
		"unknown model":    {"FP32", func(r *request) { r.ModelName = "nobody" }, codes.NotFound, "UNKNOWN_MODEL", "model", `"nobody"`},
		"other version":    {"FP32", func(r *request) { r.ModelVersion = "7" }, codes.NotFound, "UNKNOWN_MODEL", "version", `got "7", the policy of model "ctg" has "v1"`},
		"no tensor":        {"FP32", func(r *request) { r.Inputs = nil }, codes.InvalidArgument, "WRONG_TENSOR", "inputs", "got 0 tensors, expected one, named passes"},
		"two tensors":      {"FP32", func(r *request) { r.Inputs = append(r.Inputs, r.Inputs[0]) }, codes.InvalidArgument, "WRONG_TENSOR", "inputs", `got 2 tensors, "passes" "passes", expected one of them, and no more, named passes`},
		"other too large":  {"FP32", func(r *request) { before(r, "x").RawInputContents[0] = make([]byte, 4096) }, codes.ResourceExhausted, "REPLY_TOO_LARGE", "inputs", "bytes of other tensors the reply would have"},
		"form of all":      {"FP32", parameter("binary_data_output", text("no")), codes.InvalidArgument, "WRONG_PARAMETER", "parameters.binary_data_output", `got "no", expected true or false`},
		"a long name":      {"FP32", func(r *request) { r.Inputs[0].Name = long }, codes.InvalidArgument, "WRONG_TENSOR", "inputs[0].name", "xxx..."},
		"datatype":         {"FP32", func(r *request) { r.Inputs[0].Datatype = "INT32" }, codes.InvalidArgument, "WRONG_TENSOR", "inputs[0].datatype", `got "INT32", expected FP32, FP64, FP16 or BF16`},
		"rank":             {"FP32", func(r *request) { r.Inputs[0].Shape = []int64{2, 90} }, codes.InvalidArgument, "WRONG_TENSOR", "inputs[0].shape", "got [2 90], expected [inputs passes classes]"},
		"negative":         {"FP32", func(r *request) { r.Inputs[0].Shape[0] = -2 }, codes.InvalidArgument, "WRONG_TENSOR", "inputs[0].shape", "got [-2 30 3]"},
		"product overflow": {"FP32", func(r *request) { r.Inputs[0].Shape = []int64{1<<31 - 1, 1<<31 - 1, 1<<31 - 1} }, codes.InvalidArgument, "WRONG_LENGTH", "raw_input_contents[0]", "720 bytes"},
		"classes":          {"FP32", func(r *request) { r.Inputs[0].Shape = []int64{3, 30, 2} }, codes.InvalidArgument, "WRONG_CLASSES", "classes", `a row has 2, the policy of model "ctg" has 3`},
		"one byte short":   {"FP32", func(r *request) { r.RawInputContents[0] = r.RawInputContents[0][1:] }, codes.InvalidArgument, "WRONG_LENGTH", "raw_input_contents[0]", "got 719 bytes, expected 4 for each value of shape [2 30 3]"},
		"raw and typed":    {"FP32", func(r *request) { r.Inputs[0].Contents = &pb.InferTensorContents{IntContents: []int32{1}} }, codes.InvalidArgument, "TWO_ENCODINGS", "inputs[0].contents", "1 values beside raw_input_contents"},
		"typed, one short": {"typed FP32", func(r *request) { r.Inputs[0].Contents.Fp32Contents = r.Inputs[0].Contents.Fp32Contents[1:] }, codes.InvalidArgument, "WRONG_LENGTH", "inputs[0].contents", "got 179 values, 179 of them in fp32_contents, expected those of shape [2 30 3]"},
		"in another field": {"typed FP64", func(r *request) { r.Inputs[0].Datatype = "FP32" }, codes.InvalidArgument, "WRONG_LENGTH", "inputs[0].contents", "got 180 values, 0 of them in fp32_contents"},
		"layout":           {"FP32", parameter("layout", text("NKS")), codes.InvalidArgument, "WRONG_LAYOUT", "parameters.layout", `got "NKS", expected NSK or SNK`},
		"unknown kind":     {"FP32", parameter("kind", text("softmax")), codes.InvalidArgument, "WRONG_KIND", "parameters.kind", "expected probabilities, logits or dirichlet"},
		"posterior":        {"FP32", parameter("posterior", text("a b")), codes.InvalidArgument, "WRONG_POSTERIOR", "posterior", `"a b"`},
		"shared memory": {"FP32", func(r *request) {
			r.Inputs[0].Parameters = map[string]*pb.InferParameter{"shared_memory_region": text("r")}
		}, codes.InvalidArgument, "WRONG_PARAMETER", "inputs[0].parameters.shared_memory_region", `got "r", expected no such parameter`},
		"classification": {"FP32", func(r *request) {
			ask(r, "c").Outputs[0].Parameters = map[string]*pb.InferParameter{"classification": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 2}}}
		}, codes.InvalidArgument, "WRONG_PARAMETER", "outputs[0].parameters.classification", "got 2, expected no such parameter"},
		"sequence of 0": {"FP32", func(r *request) {
			r.Parameters = map[string]*pb.InferParameter{"sequence_id": {ParameterChoice: &pb.InferParameter_Int64Param{}}, "layout": text("NKS")}
		}, codes.InvalidArgument, "WRONG_LAYOUT", "parameters.layout", "expected NSK"},
		"unknown output":  {"FP32", func(r *request) { ask(r, "c", "cc") }, codes.InvalidArgument, "WRONG_TENSOR", "outputs[1].name", `got "cc", expected one of c skewness mean`},
		"too few passes":  {"FP32", func(r *request) { r.Inputs[0].Shape = []int64{30, 2, 3} }, codes.InvalidArgument, "TOO_FEW_PASSES", "passes", "2 passes, expected at least 4"},
		"too many passes": {"FP32", func(r *request) { r.Inputs[0].Shape = []int64{0, 1001, 3}; r.RawInputContents[0] = nil }, codes.InvalidArgument, "TOO_MANY_PASSES", "passes", "limit of 1000"},
		"too many inputs": {"FP32", func(r *request) { r.Inputs[0].Shape = []int64{101, 0, 3}; r.RawInputContents[0] = nil }, codes.ResourceExhausted, "TOO_MANY_INPUTS", "inputs", "limit of 100"},
		"too much asked":  {"FP32", func(r *request) { *r = *ask(ctg(t, 40).request("ctg", "", "FP32"), allOutputs...) }, codes.ResourceExhausted, "REPLY_TOO_LARGE", "outputs", "40 inputs with these outputs"},
		"over the budget": {"FP32", func(r *request) { *r = *tensor{30, 999, 3, make([]float32, 30*999*3)}.request("ctg", "", "FP32") }, codes.ResourceExhausted, "OUT_OF_MEMORY_BUDGET", "values", "may hold 393216"},
	} {
		t.Run(name, func(t *testing.T) {
			request := ctg(t, 2).request("ctg", "", c.form)
			c.change(request)
			_, err := h.client.ModelInfer(t.Context(), request)
			if status.Code(err) != c.code {
				t.Fatalf("%v, want %v", err, c.code)
			}
			if got := servertest.FaultOf(err); got.Reason != c.reason || got.Field != c.field || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%+v %v, want %s %s with %q", got, err, c.reason, c.field, c.text)
			}
			if n := proto.Size(status.Convert(err).Proto()); n > 2048 {
				t.Errorf("the error has %d bytes", n)
			}
		})
	}
	h.eventually(t, 0, "ckd_decisions_total")
	h.eventually(t, 2, "ckd_inputs_rejected_total", "model", "", "reason", "unknown_model")
}

// TestProperties checks that both protocols agree on each input, whatever the values and their
// form, and that this one refuses a request exactly if the other refuses an input. The tensor's layout
// wins over that of the request, and parameters for other servers change nothing.
func TestProperties(t *testing.T) {
	h := newHarness(t, server.DefaultLimits())
	rapid.Check(t, func(rt *rapid.T) {
		model := rapid.SampledFrom([]string{"ctg", "logits", "evidential"}).Draw(rt, "model")
		v := tensor{inputs: rapid.IntRange(0, 9).Draw(rt, "inputs"), passes: rapid.IntRange(4, 9).Draw(rt, "passes"), classes: 3}
		if model == "evidential" {
			v.passes = 1
		}
		for range v.inputs * v.passes {
			a, b := rapid.Float32Range(0, 1).Draw(rt, "a"), rapid.Float32Range(0, 1).Draw(rt, "b")
			row := []float32{a * b, a * (1 - b), 1 - a}
			if rapid.IntRange(0, 40).Draw(rt, "bad") == 0 {
				row[rapid.IntRange(0, 2).Draw(rt, "class")] = rapid.SampledFrom([]float32{
					float32(math.NaN()), float32(math.Inf(1)), -1, 2, 0,
				}).Draw(rt, "value")
			}
			v.values = append(v.values, row...)
		}
		form := rapid.SampledFrom([]string{"FP32", "typed FP32"}).Draw(rt, "form") // others are given another tolerance
		request := v.request(model, rapid.SampledFrom([]string{"", "NSK", "SNK"}).Draw(rt, "layout"), form)
		if own := request.Parameters["layout"]; own != nil && rapid.Bool().Draw(rt, "layout of the tensor") {
			request.Parameters["layout"] = text(map[string]string{"NSK": "snk", "SNK": "LAYOUT_NSK"}[own.GetStringParam()])
			request.Inputs[0].Parameters = map[string]*pb.InferParameter{"layout": own}
		}
		request.Parameters["priority"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 7}}
		native := v.native(t, h, model)
		bad := slices.IndexFunc(native, func(r *ckdv1.Result) bool { return r.GetError() != nil })
		response, err := h.client.ModelInfer(t.Context(), ask(request, allOutputs...))
		switch {
		case bad < 0 && err != nil:
			rt.Fatalf("refused: %v", err)
		case bad < 0:
			compare(rt, read(t, response), native, classesOf[model])
		case status.Convert(err).Message() != native[bad].GetError().GetMessage():
			rt.Fatalf("got %v, want %v", err, native[bad].GetError())
		}
		a := read(rt, h.infer(rt, ask(request, "error")))
		for i, r := range native {
			if got := a.texts("error")[i]; got != r.GetError().GetMessage() || a.truths("defer")[i] != (r.GetError() != nil || r.GetDecomposition().GetDecision().GetAction() == ckdv1.Action_ACTION_DEFER) {
				rt.Fatalf("input %d: %q, defer %v, want %v", i, got, a.truths("defer")[i], r)
			}
		}
	})
}
