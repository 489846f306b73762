package oip_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/servertest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// receiptKeys puts keys in force and returns them.
func (h *harness) receiptKeys(t *testing.T) *receipt.Keys {
	t.Helper()
	keys, err := receipt.ParseKeys("keys", fmt.Appendf(nil, "%064x\n", 7))
	if err != nil {
		t.Fatal(err)
	}
	h.server.SetReceiptKeys(keys)
	return keys
}

// TestReceipts checks that receipts say the same as those of ckd.v1, by default and by name, raw and
// typed.
func TestReceipts(t *testing.T) {
	const inputs = 50
	h := newHarness(t, server.DefaultLimits())
	keys := h.receiptKeys(t)
	values := ctg(t, inputs)
	native, err := h.native.Decompose(t.Context(), &ckdv1.DecomposeRequest{
		Model: "ctg", Layout: ckdv1.Layout_LAYOUT_NSK, Passes: 30, Inputs: inputs, Values: values.values,
		Receipts: ckdv1.Receipts_RECEIPTS_REVIEWED, ModelVersion: "v7",
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*pb.ModelInferRequest){
		"by default": func(*pb.ModelInferRequest) {},
		"by name":    func(r *pb.ModelInferRequest) { ask(r, "receipt", "review", "error") },
		"typed": func(r *pb.ModelInferRequest) {
			r.Parameters["binary_data_output"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := values.request("ctg", "", "FP32")
			request.Parameters["receipts"], request.Parameters["model_version"] = text("reviewed"), text("v7")
			change(request)
			a := read(t, h.infer(t, request))
			for i, r := range native.GetResults() {
				d, sealed := r.GetDecomposition(), a["receipt"].GetBytesContents()[i]
				if a.truths("review")[i] != d.GetReview() || len(sealed) != len(d.GetReceipt()) {
					t.Errorf("input %d: review %v, a receipt of %d bytes; expected %v, %d", i, a.truths("review")[i], len(sealed), d.GetReview(), len(d.GetReceipt()))
				}
				if len(sealed) == 0 {
					continue
				}
				got, _, gotErr := keys.Open(sealed)
				want, _, wantErr := keys.Open(d.GetReceipt())
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(receipt.Receipt{}, "Time"), cmpopts.EquateNaNs()); gotErr != nil || wantErr != nil || diff != "" {
					t.Errorf("input %d: %v, %v, (-want +got):\n%s", i, gotErr, wantErr, diff)
				}
			}
		})
	}
}

// TestReceiptsRefused checks requests that would have audits drawn in vain.
func TestReceiptsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		parameter string
		outputs   []string
		keyless   bool
		code      codes.Code
		reason    string
		field     string
	}{
		"unknown":    {"some", nil, false, codes.InvalidArgument, "WRONG_PARAMETER", "parameters.receipts"},
		"no output":  {"all", []string{"defer"}, false, codes.InvalidArgument, "WRONG_PARAMETER", "parameters.receipts"},
		"one output": {"all", []string{"review"}, false, codes.InvalidArgument, "WRONG_PARAMETER", "parameters.receipts"},
		"no keys":    {"all", nil, true, codes.FailedPrecondition, "RECEIPTS_UNAVAILABLE", "receipts"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, server.DefaultLimits())
			if !c.keyless {
				h.receiptKeys(t)
			}
			r := ask(ctg(t, 2).request("ctg", "", "FP32"), c.outputs...)
			if c.parameter != "" {
				r.Parameters["receipts"] = text(c.parameter)
			}
			_, err := h.client.ModelInfer(t.Context(), r)
			if f := servertest.FaultOf(err); status.Code(err) != c.code || f.Reason != c.reason || f.Field != c.field {
				t.Errorf("got %v with %+v, expected %v, %s, %s", err, f, c.code, c.reason, c.field)
			}
		})
	}
}
