package backupdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// File is a file of a backup.
type File struct {
	ID     string `json:"id"` // in the cluster of which it is a copy
	Bytes  int64  `json:"bytes"`
	Check  string `json:"check"` // files with equal ID, Bytes and Check are equal
	SHA256 string `json:"sha256"`
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
}

// envelope is ID.json.
type envelope struct {
	Format int             `json:"format"`
	SHA256 string          `json:"sha256"`
	Backup json.RawMessage `json:"backup"`
}

const (
	format = 1
	// filesMax is the most files of a backup: import_backup accepts no more.
	filesMax = 1 << 20
	// manifestBytesMax bounds ID.json and ID.partial, in bytes. A file has about 170.
	manifestBytesMax = 512 << 20
	idBytesMax       = 64

	fileIDDigits = 32
	checkDigits  = 8
	sha256Digits = 2 * sha256.Size
)

// encode returns the content of ID.json.
func (b *Backup) encode() ([]byte, error) {
	inner, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(&envelope{format, hashOf(inner), inner})
	return append(out, '\n'), err
}

func hashOf(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

// decode decodes the content of ID.json. The name of the file is for errors: *CorruptError, *FormatError.
func decode(raw []byte, id, file string) (*Backup, error) {
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
	if got := hashOf(e.Backup); got != e.SHA256 {
		return bad("its SHA-256 is %s, want %.80q", got, e.SHA256)
	}
	b := &Backup{}
	if err := json.Unmarshal(e.Backup, b); err != nil {
		return bad("%v", err)
	}
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
	return b, nil
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
