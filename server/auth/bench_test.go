package auth

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// BenchmarkUnary measures what access control costs a call, by the number of tokens.
func BenchmarkUnary(b *testing.B) {
	for _, tokens := range []int{1, 100, maxTokens} {
		b.Run(fmt.Sprintf("tokens=%d", tokens), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("identities:\n- name: a\n  models: [m]\n  tokens:\n")
			for i := range tokens {
				fmt.Fprintf(&text, "  - sha256: %s\n", sumOf(fmt.Sprint("token-number-", i)))
			}
			path := filepath.Join(b.TempDir(), "access.yaml")
			if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
				b.Fatal(err)
			}
			s, err := Open(path, Options{})
			if err != nil {
				b.Fatal(err)
			}
			ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("authorization", "Bearer token-number-0", "x-request-id", "7"))
			info := &grpc.UnaryServerInfo{FullMethod: "/ckd.v1.UncertaintyService/Decompose"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Unary(ctx, nil, info, func(ctx context.Context, _ any) (any, error) { return nil, Allow(ctx, "m") }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
