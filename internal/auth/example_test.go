package auth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/ckd-project/ckd/internal/auth"
)

// An access file lists who may do what. Tokens stand in it as their SHA-256.
func Example() {
	dir, err := os.MkdirTemp("", "access")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "access.yaml")
	text := "identities:\n- {name: clinic, tokens: [{sha256: " + sumOf("a token of the clinic") + "}], models: [lesions]}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	store, err := auth.Open(path, auth.Options{})
	if err != nil {
		fmt.Println(err) // every fault of the file, with line and column
		return
	}
	handler := store.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		who := auth.FromContext(r.Context())
		fmt.Println(who.Name(), "may use lesions:", who.MayUse("lesions"), "and fundus:", who.MayUse("fundus"))
	}), auth.HTTPOptions{Need: func(*http.Request) auth.Need { return auth.NeedIdentity }})

	for _, token := range []string{"a token of the clinic", "a guess"} {
		request := httptest.NewRequest(http.MethodPost, "/v1/decompose", nil)
		request.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		fmt.Println(answer.Code)
	}
	// Output:
	// clinic may use lesions: true and fundus: false
	// 200
	// 401
}
