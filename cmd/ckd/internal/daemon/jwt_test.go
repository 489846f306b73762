package daemon_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ckd-project/ckd/client"
	"github.com/ckd-project/ckd/internal/config"
	"github.com/ckd-project/ckd/internal/issuertest"
	ckdv1 "github.com/ckd-project/ckd/proto/ckd/v1"
)

// withIssuer lets in the tokens of a test's issuer.
func withIssuer(t *testing.T, tokens *issuertest.Issuer) func(*config.Config) {
	return func(c *config.Config) {
		c.Access = filepath.Join(t.TempDir(), "access.yaml")
		write(t, c.Access, fmt.Sprintf(`
issuers: [{name: cluster, url: "%s", audience: %s, ca: %s}]
identities:
- {name: grader, models: [m], jwts: [{issuer: cluster, claims: {sub: "system:serviceaccount:eye:grader"}}]}
`, tokens.URL, issuertest.Audience, tokens.CAFile))
	}
}

// TestStreamEndsWithItsToken checks that a stream drains when its token expires: open inputs are
// answered, and the stream ends with DRAINING.
func TestStreamEndsWithItsToken(t *testing.T) {
	tokens := issuertest.New(t)
	d := start(t, withIssuer(t, tokens), grace(time.Minute))
	rpc := ckdv1.NewUncertaintyServiceClient(dial(t, d.Targets()[0]))
	// Until the keys are here the daemon refuses, and on a slow machine a token may end too soon.
	life := 2 * time.Second
	open := func() (ckdv1.UncertaintyService_DecomposeStreamClient, error) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+tokens.Token(life, nil))
		stream, err := rpc.DecomposeStream(ctx)
		if err != nil {
			return nil, err
		}
		header := &ckdv1.StreamHeader{Model: "m"}
		err = stream.Send(&ckdv1.DecomposeStreamRequest{Message: &ckdv1.DecomposeStreamRequest_Header{Header: header}})
		if err != nil && !errors.Is(err, io.EOF) { // Recv tells why a stream has ended already.
			return nil, err
		}
		_, err = stream.Recv()
		return stream, err
	}
	stream, err := open()
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); stream, err = open() {
		switch reason := detail[*errdetails.ErrorInfo](err).GetReason(); reason {
		case "KEYS_UNAVAILABLE":
		case "DRAINING", "UNAUTHENTICATED":
			life *= 2
		default:
			t.Fatalf("refused for %q: %v", reason, err)
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	openInput(t, stream, 0.5, 0.5, 0.4, 0.6, 0.3, 0.7)
	for drained := false; !drained; time.Sleep(time.Millisecond) { // until an input is refused
		sendBlock(t, stream, &ckdv1.Block{Group: 2, InputIds: []string{"late"}, Passes: 4, Values: []float32{0.5, 0.5, 0.4, 0.6, 0.5, 0.5, 0.4, 0.6}, Final: true})
		for _, r := range receive(t, stream).GetResults() {
			drained = drained || codes.Code(r.GetError().GetCode()) == codes.Unavailable
		}
	}
	sendBlock(t, stream, &ckdv1.Block{Group: 1, Passes: 1, Values: []float32{0.4, 0.6}, Final: true})
	if results := receive(t, stream).GetResults(); len(results) != 1 || results[0].GetError() != nil {
		t.Errorf("the open input is answered with %v, want a decomposition", results)
	}
	_, err = stream.Recv()
	if reason := detail[*errdetails.ErrorInfo](err).GetReason(); status.Code(err) != codes.Unavailable || reason != "DRAINING" {
		t.Errorf("the stream ends with %v, want DRAINING", err)
	}
}

// TestClientOutlivesItsToken checks that a session goes on when its token expires and the file holds
// another, and that the daemon starts without the issuer.
func TestClientOutlivesItsToken(t *testing.T) {
	tokens := issuertest.New(t)
	tokens.Down(true)
	d := start(t, withIssuer(t, tokens))
	file := filepath.Join(t.TempDir(), "token")
	replace := func(left time.Duration) {
		write(t, file+".new", tokens.Token(left, nil))
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	replace(time.Hour)
	c, err := client.Dial(d.Targets()[0], client.WithTokenFile(file))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Models(t.Context())
	if reason := detail[*errdetails.ErrorInfo](err).GetReason(); reason != "KEYS_UNAVAILABLE" {
		t.Errorf("refused for %q (%v), want KEYS_UNAVAILABLE", reason, err)
	}
	await(t, "/healthz tells that keys are missing", func() bool {
		_, lines := get(t, d.AdminURL()+"/healthz")
		return strings.Contains(lines, "issuer keys: not fetched")
	})
	tokens.Down(false)
	var session *client.Session
	await(t, "a session opens", func() bool {
		replace(3 * time.Second)
		session, err = c.Session(t.Context(), client.SessionConfig{Model: "m", Reconnect: client.Reconnect{Limit: time.Minute}})
		return err == nil
	})
	replace(time.Hour)
	unavailable := func() string {
		_, text := get(t, d.AdminURL()+"/metrics")
		return regexp.MustCompile(`grpc_server_handled_total\{grpc_code="Unavailable",grpc_method="DecomposeStream".*`).FindString(text)
	}
	before, n := unavailable(), 0
	await(t, "the stream ends with its token", func() bool {
		n++
		results, err := session.Do(t.Context(), []string{fmt.Sprint(n)}, slices.Values([][]float32{{0.5, 0.5}, {0.4, 0.6}, {0.3, 0.7}, {0.2, 0.8}}))
		if err != nil || len(results) != 1 || results[0].Err != nil {
			t.Fatalf("batch %d: %+v, %v", n, results, err)
		}
		return unavailable() != before
	})
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}
