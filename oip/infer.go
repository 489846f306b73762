package oip

import (
	"context"

	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// ModelInfer implements the RPC.
func (s *service) ModelInfer(ctx context.Context, r *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	q, _ := read(r) // Decide reports the violation once it knows the policy
	answer := &answer{request: q}
	policy, err := s.server.Decide(ctx, &q.call, func(i int, d *server.Decided, err error) {
		if err != nil {
			answer.refused(err)
		} else {
			answer.decided(d)
		}
	})
	if err != nil {
		return nil, err
	}
	response := &pb.ModelInferResponse{
		ModelName: policy.GetModel(), ModelVersion: policy.GetVersion(), Id: r.GetId(),
		Parameters: map[string]*pb.InferParameter{
			"policy_hash": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: policy.GetHash()}},
		},
	}
	answer.addTo(response)
	return response, nil
}
