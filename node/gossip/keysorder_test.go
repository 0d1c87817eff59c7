package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"log/slog"
	"sync"
	"testing"
	"time"
)

// TestDecrypterHasAllKeys: while keys are replaced, the decrypter has every key that memberlist
// accepts. Otherwise memberlist would process messages that were not checked, and a removed node,
// which has the old key, could crash the process.
func TestDecrypterHasAllKeys(t *testing.T) {
	one, other := bytes.Repeat([]byte{1}, keyBytes), bytes.Repeat([]byte{2}, keyBytes)
	r, err := Start(Config{Self: Meta{ID: "a", Name: "a", RPC: "127.0.0.1:1"}, Cluster: "c", Keys: [][]byte{one}, Bind: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sealed := map[string][]byte{}
	for _, k := range [][]byte{one, other} {
		block, _ := aes.NewCipher(k)
		c, _ := cipher.NewGCM(block)
		nonce := make([]byte, c.NonceSize())
		sealed[string(k)] = c.Seal(append([]byte{encryptionVersion}, nonce...), nonce, []byte("x"), []byte("c"))
	}
	end := make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			before := r.keyring.GetKeys()
			var unknown []byte
			for _, k := range before {
				if plain, err := r.transport.decrypter.open(nil, sealed[string(k)]); plain == nil || err != nil {
					unknown = k
				}
			}
			if unknown != nil && &before[0] == &r.keyring.GetKeys()[0] { // each change makes a new slice
				t.Errorf("memberlist accepts key %d, and the decrypter does not have it", unknown[0])
				return
			}
		}
	})
	for began := time.Now(); time.Since(began) < 300*time.Millisecond && !t.Failed(); {
		for _, keys := range [][][]byte{{one, other}, {other, one}, {other}, {other, one}, {one, other}, {one}} {
			if err := r.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(end)
	looks.Wait()
}
