package backupdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"
)

// File is a file of a backup.
type File struct {
	ID     string `json:"id"` // in the cluster of which it is a copy
	Bytes  int64  `json:"bytes"`
	Check  string `json:"check"`  // files with equal ID, Bytes and Check are equal
	SHA256 string `json:"sha256"` // or its HMAC, if the directory is encrypted
}

// Backup is a backup in a directory.
type Backup struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"` // in its cluster
	Copied  time.Time `json:"copied"`
	Tables  []string  `json:"tables"`
	Tablets int64     `json:"tablets"`
	Bytes   int64     `json:"bytes"` // of the tablets' files
	Files   []File    `json:"files"` // the manifest first
	Access  *Access   `json:"access,omitempty"`
}

// envelope is ID.json.
type envelope struct {
	Format int             `json:"format"`
	Key    string          `json:"key,omitempty"`
	SHA256 string          `json:"sha256"`
	Backup json.RawMessage `json:"backup,omitempty"`
	Sealed []byte          `json:"sealed,omitempty"`
}

const (
	format = 1
	// filesMax is the most files of a backup: import_backup accepts no more.
	filesMax = 1 << 20
	// manifestBytesMax bounds ID.json and ID.partial.N, in bytes. A file has about 170.
	manifestBytesMax = 512 << 20
	idBytesMax       = 64

	fileIDDigits = 32
	checkDigits  = 8
	sha256Digits = 2 * sha256.Size
	keyIDDigits  = 2 * keyIDBytes
)

// encode returns the content of ID.json.
func (b *Backup) encode(key *Key) ([]byte, error) {
	inner, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	e := envelope{Format: format, Key: key.ID(), SHA256: key.sum(inner)}
	if key == nil {
		e.Backup = inner
	} else if e.Sealed, err = key.seal(inner); err != nil {
		return nil, err
	}
	out, err := json.Marshal(&e)
	return append(out, '\n'), err
}

// open returns the value of backup, which is decrypted if there is a key.
func (e *envelope) open(key *Key) ([]byte, error) {
	inner := []byte(e.Backup)
	if key != nil {
		var err error
		if inner, err = key.unseal(e.Sealed); err != nil {
			return nil, err
		}
	}
	if got := key.sum(inner); got != e.SHA256 {
		return nil, fmt.Errorf("its hash is %s, want %.80q", got, e.SHA256)
	}
	return inner, nil
}

// decode decodes the content of ID.json. The name of the file is for errors: *CorruptError, *FormatError, *KeyError.
func decode(raw []byte, id, file string, key *Key) (*Backup, error) {
	var e envelope
	bad := func(reason string, args ...any) (*Backup, error) {
		return nil, &CorruptError{file, fmt.Sprintf(reason, args...)}
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return bad("%v", err)
	}
	if e.Format > format {
		return nil, &FormatError{file, e.Format}
	}
	if e.Format != format {
		return bad("format %d", e.Format)
	}
	if e.Key != key.ID() {
		if e.Key != "" && !isHex(e.Key, keyIDDigits) {
			return bad("its key is %.80q", e.Key)
		}
		return nil, &KeyError{file, e.Key, key.ID()}
	}
	inner, err := e.open(key)
	if err != nil {
		return bad("%v", err)
	}
	b := &Backup{}
	if err := json.Unmarshal(inner, b); err != nil {
		return bad("%v", err)
	}
	if err := b.check(id, file); err != nil {
		return nil, err
	}
	return b, nil
}

// check checks what a manifest states. The error is a *CorruptError.
func (b *Backup) check(id, file string) error {
	bad := func(reason string, args ...any) error { return &CorruptError{file, fmt.Sprintf(reason, args...)} }
	if b.ID != id {
		return bad("it is backup %.80q", b.ID)
	}
	if len(b.Files) == 0 || len(b.Files) > filesMax {
		return bad("it has %d files", len(b.Files))
	}
	seen := make(map[string]bool, len(b.Files))
	for i := range b.Files {
		f := &b.Files[i]
		if err := f.check(); err != nil || !isHex(f.SHA256, sha256Digits) || seen[f.ID] {
			return bad("file %d is %+.200v", i, *f)
		}
		seen[f.ID] = true
	}
	return nil
}

// check checks what the cluster states of a file.
func (f *File) check() error {
	if f.Bytes < 0 || !isHex(f.ID, fileIDDigits) || !isHex(f.Check, checkDigits) {
		return fmt.Errorf("invalid file %.80q of %d bytes with check %.80q", f.ID, f.Bytes, f.Check)
	}
	return nil
}

func isHex(s string, digits int) bool {
	return len(s) == digits && len(bytes.Trim([]byte(s), "0123456789abcdef")) == 0
}

// validID reports whether an id is safe as the name of a file.
func validID(id string) bool {
	if id == "" || len(id) > idBytesMax {
		return false
	}
	for _, c := range []byte(id) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
