package daemon

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"github.com/ckd-project/ckd/internal/outcome/receipt"
	"github.com/ckd-project/ckd/internal/watch"
)

// receiptKeys keeps the key file of receipts in force.
type receiptKeys struct {
	*watch.Reloader
	path    string
	use     func(*receipt.Keys)
	current atomic.Pointer[keysOfFile]
}

// keysOfFile holds keys and the text that they were read from.
type keysOfFile struct {
	*receipt.Keys
	text []byte
}

// mostKeyBytes bounds a key file: some hundred keys.
const mostKeyBytes = 64 << 10

// openReceiptKeys reads a key file. Whenever it changes, use is called with its keys, and with the
// first ones now.
func openReceiptKeys(path string, use func(*receipt.Keys)) (*receiptKeys, error) {
	k := &receiptKeys{path: path, use: use}
	k.Reloader = watch.NewReloader(func() []string { return []string{path} }, k.replace)
	k.current.Store(&keysOfFile{})
	_, err := k.replace()
	return k, err
}

// keys returns the keys in force; nil without a key file.
func (k *receiptKeys) keys() *receipt.Keys {
	if k == nil {
		return nil
	}
	return k.current.Load().Keys
}

// replace puts the file's present keys in force.
func (k *receiptKeys) replace() (watch.Result, error) {
	data, unread, err := watch.Read(mostKeyBytes, k.path)
	if err == nil {
		err = unread[k.path]
	}
	if err != nil {
		return watch.Result{}, fmt.Errorf("%s: cannot read: %w", k.path, err)
	}
	text := data[k.path]
	if k.keys() != nil && bytes.Equal(text, k.current.Load().text) {
		return watch.Result{}, nil
	}
	keys, err := receipt.ParseKeys(k.path, text)
	if err != nil {
		return watch.Result{}, err
	}
	k.current.Store(&keysOfFile{keys, text})
	k.use(keys)
	return watch.Result{Changed: true}, nil
}
