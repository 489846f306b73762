package oip

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/internal/buildinfo"
	pb "github.com/ckd-project/ckd/proto/inference"
	"github.com/ckd-project/ckd/server"
)

// platform names what runs the models.
const platform = "ckd"

// Register adds inference.GRPCInferenceService to a gRPC server. s answers its calls.
func Register(to grpc.ServiceRegistrar, s *server.Server) {
	pb.RegisterGRPCInferenceServiceServer(to, &service{server: s})
}

type service struct {
	pb.UnimplementedGRPCInferenceServiceServer
	server *server.Server
}

// ServerLive implements the RPC.
func (s *service) ServerLive(context.Context, *pb.ServerLiveRequest) (*pb.ServerLiveResponse, error) {
	return &pb.ServerLiveResponse{Live: true}, nil
}

// ServerReady implements the RPC.
func (s *service) ServerReady(context.Context, *pb.ServerReadyRequest) (*pb.ServerReadyResponse, error) {
	return &pb.ServerReadyResponse{Ready: s.server.Serving()}, nil
}

// ModelReady implements the RPC. It answers that an unknown model is not ready.
func (s *service) ModelReady(ctx context.Context, r *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	_, err := s.server.Policy(ctx, r.GetName(), r.GetVersion())
	if err != nil && status.Code(err) != codes.NotFound {
		return nil, err
	}
	return &pb.ModelReadyResponse{Ready: err == nil && s.server.Serving()}, nil
}

// ServerMetadata implements the RPC.
func (s *service) ServerMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	return &pb.ServerMetadataResponse{
		Name: platform, Version: buildinfo.Get().Version, Extensions: []string{"model_configuration"},
	}, nil
}

// ModelMetadata implements the RPC.
func (s *service) ModelMetadata(ctx context.Context, r *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	p, err := s.server.Policy(ctx, r.GetName(), r.GetVersion())
	if err != nil {
		return nil, err
	}
	response := &pb.ModelMetadataResponse{
		Name: p.Name, Platform: platform,
		Inputs: []*pb.ModelMetadataResponse_TensorMetadata{{Name: p.Tensor, Datatype: "FP32", Shape: inputShape(p)}},
	}
	if p.Version != "" {
		response.Versions = []string{p.Version}
	}
	for _, o := range outputs {
		response.Outputs = append(response.Outputs, &pb.ModelMetadataResponse_TensorMetadata{
			Name: o.name, Datatype: o.datatype.name, Shape: o.shape(-1, len(p.Classes)),
		})
	}
	return response, nil
}

// ModelConfig implements the RPC.
func (s *service) ModelConfig(ctx context.Context, r *pb.ModelConfigRequest) (*pb.ModelConfigResponse, error) {
	p, err := s.server.Policy(ctx, r.GetName(), r.GetVersion())
	if err != nil {
		return nil, err
	}
	config := &pb.ModelConfig{
		Name: p.Name, Platform: platform, Backend: platform,
		Input:                  []*pb.ModelInput{{Name: p.Tensor, DataType: pb.DataType_TYPE_FP32, Dims: inputShape(p)}},
		ModelTransactionPolicy: &pb.ModelTransactionPolicy{},
	}
	for _, o := range outputs {
		config.Output = append(config.Output, &pb.ModelOutput{
			Name: o.name, DataType: o.datatype.triton, Dims: o.shape(-1, len(p.Classes)),
		})
	}
	return &pb.ModelConfigResponse{Config: config}, nil
}

// ModelStreamInfer implements the RPC. It answers a wrong request with its error, and goes on.
func (s *service) ModelStreamInfer(stream pb.GRPCInferenceService_ModelStreamInferServer) error {
	return server.Bidi(s.server, stream, func(ctx context.Context, r *pb.ModelInferRequest) *pb.ModelStreamInferResponse {
		response, err := s.ModelInfer(ctx, r)
		if err != nil {
			return &pb.ModelStreamInferResponse{
				ErrorMessage: status.Convert(err).Message(), InferResponse: &pb.ModelInferResponse{Id: r.GetId()},
			}
		}
		// Clients of Triton look for this parameter, because other models give several answers.
		response.Parameters["triton_final_response"] = &pb.InferParameter{
			ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true},
		}
		return &pb.ModelStreamInferResponse{InferResponse: response}
	})
}
