package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// chain is the head of a log: the number of its last line, and the SHA-256 of that line without its
// line feed. Each line contains both for the line before it, so no line can be changed or removed
// without changing all later ones.
type chain struct {
	seq uint64
	sum [sha256.Size]byte
}

// chainAfter returns the head of a log whose last line is text. A line written by a version without
// chains has the number 0.
func chainAfter(text []byte) chain {
	var l struct {
		Seq uint64 `json:"seq"`
	}
	_ = json.Unmarshal(text, &l)
	return chain{l.Seq, sha256.Sum256(text)}
}

// prev is the value of prev in the line after c: empty for a log without lines.
func (c chain) prev() string {
	if c == (chain{}) {
		return ""
	}
	return hex.EncodeToString(c.sum[:])
}

// add sets the chain fields of l to follow c, appends the line to b, and returns the new head.
func (c chain) add(b *bytes.Buffer, file string, l *line) chain {
	l.Log, l.Seq, l.Prev = strings.TrimSuffix(file, ".log"), c.seq+1, c.prev()
	start := b.Len()
	l.encode(b)
	return chain{l.Seq, sha256.Sum256(b.Bytes()[start : b.Len()-1])}
}
