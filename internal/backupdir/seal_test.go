package backupdir

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestGoldenSeal: an object is encrypted as the specification shows, and as former versions did.
func TestGoldenSeal(t *testing.T) {
	k := testKey(t)
	var out bytes.Buffer
	s, err := k.newSealerWith(&out, bytes.Repeat([]byte{2}, saltBytes))
	if err == nil {
		_, err = s.Write([]byte("abc"))
	}
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	want := "5354454c45424b4f" + strings.Repeat("02", saltBytes) + goldenChunk
	if got := hex.EncodeToString(out.Bytes()); got != want {
		t.Errorf("the object is %s, want %s", got, want)
	}
	if k.ID() != goldenKeyID || k.sum([]byte("abc")) != goldenName {
		t.Errorf("the key is %s, and the object's name %s", k.ID(), k.sum([]byte("abc")))
	}
	if p, err := k.unseal(out.Bytes()); err != nil || string(p) != "abc" {
		t.Errorf("decrypted: %q, %v", p, err)
	}
}

const (
	goldenChunk = "44a098c7eac50621a56fdc250e76748998f3eb"
	goldenKeyID = "30246771ee49b10f"
	goldenName  = "38ddaae9c35f6f9382d30a81c396993809ef345fa2607ab01705b6044710ad2b"
)

// TestSeal (BD4): objects of sizes around that of a chunk are read as they were written. Each change of a bit, each exchange of chunks, and each
// cut is found.
func TestSeal(t *testing.T) {
	k := testKey(t)
	for _, n := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3 * chunkBytes} {
		p := bytes.Repeat([]byte("x"), n)
		sealed, err := k.seal(p)
		if err != nil || int64(len(sealed)) != k.storedBytes(int64(n)) {
			t.Fatalf("%d bytes become %d, %v", n, len(sealed), err)
		}
		if got, err := k.unseal(sealed); err != nil || !bytes.Equal(got, p) {
			t.Fatalf("%d bytes are read as %d, %v", n, len(got), err)
		}
		for i := 0; i < len(sealed); i += 1 + len(sealed)/300 {
			bad := slices.Clone(sealed)
			bad[i] ^= 1
			if _, err := k.unseal(bad); !errors.Is(err, errSeal) {
				t.Fatalf("with a change at %d of %d bytes: %v", i, len(sealed), err)
			}
			if _, err := k.unseal(sealed[:i]); !errors.Is(err, errSeal) {
				t.Fatalf("with a cut at %d of %d bytes: %v", i, len(sealed), err)
			}
		}
	}
	sealed, err := k.seal(make([]byte, 3*chunkBytes))
	if err != nil {
		t.Fatal(err)
	}
	const stored = chunkBytes + tagBytes
	first, second := sealed[headerBytes:headerBytes+stored], sealed[headerBytes+stored:headerBytes+2*stored]
	swapped := slices.Concat(sealed[:headerBytes], second, first, sealed[headerBytes+2*stored:])
	for what, bad := range map[string][]byte{"exchanged chunks": swapped, "without its last chunk": sealed[:headerBytes+2*stored]} {
		if _, err := k.unseal(bad); !errors.Is(err, errSeal) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestKeys (BD3, BD4): without the key of a directory nothing of it is read, copied into it, or deleted, and no name or content is in its files.
func TestKeys(t *testing.T) {
	e := newEnv(t)
	e.key = testKey(t)
	b := e.c.add("b1", "manifest 1", "a secret")
	b.Tables = []string{"salaries"}
	e.mustCopy(b)
	e.interrupt(e.c.add("b2", "manifest 2", "another secret"))
	var all []byte
	for _, name := range e.files("/nfs") {
		e.change(name, func(b []byte) []byte { all = append(all, b...); return b })
	}
	for _, secret := range []string{"secret", "salaries", "manifest 1", (*Key)(nil).sum([]byte("a secret"))} {
		if bytes.Contains(all, []byte(secret)) {
			t.Errorf("the directory has %q", secret)
		}
	}
	other, err := NewKey(bytes.Repeat([]byte{2}, KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	right, objects := e.key, e.objects()
	for _, wrong := range []*Key{nil, other} {
		e.key = wrong
		var bad *KeyError
		if list, err := e.dir().List(t.Context()); err != nil || len(list) != 1 || !errors.As(list[0].Err, &bad) || bad.Want != right.ID() || bad.Got != wrong.ID() {
			t.Errorf("listed: %+v, %v", list, err)
		}
		if err := e.copy(e.c.add("b3", "manifest 3")); !errors.As(err, &bad) {
			t.Errorf("a copy by another key: %v", err)
		}
		if _, err := e.dir().Delete(t.Context(), "b2"); !errors.As(err, &bad) || e.objects() != objects {
			t.Errorf("a deletion by another key: %v", err)
		}
	}
	e.key = right
	if got := e.check(); !slices.Equal(got, []string{"b1"}) {
		t.Errorf("listed: %v", got)
	}
	if _, err := NewKey(nil); err == nil {
		t.Error("a key of 0 bytes is accepted")
	}
}

// files returns the names of all files below a directory.
func (e *env) files(dir string) (all []string) {
	names, err := e.fs.ReadDir(dir)
	if err != nil {
		return []string{dir}
	}
	for _, name := range names {
		all = append(all, e.files(dir+"/"+name)...)
	}
	return all
}
