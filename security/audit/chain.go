package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// chain is the end of a log: the number of its last line, and the SHA-256 of that line without its line feed. Each line
// holds both of the line before it, so none can be changed or taken out without a change of all that follow.
type chain struct {
	seq uint64
	sum [sha256.Size]byte
}

// chainAfter returns the end of a log whose last line this is. A line of a version without chains has the number 0.
func chainAfter(text []byte) chain {
	var l struct {
		Seq uint64 `json:"seq"`
	}
	_ = json.Unmarshal(text, &l)
	return chain{l.Seq, sha256.Sum256(text)}
}

// prev is what the next line holds of this one: nothing of a log without lines.
func (c chain) prev() string {
	if c == (chain{}) {
		return ""
	}
	return hex.EncodeToString(c.sum[:])
}

// add appends a line to b with its place behind the chain's end, and returns the end that it makes.
func (c chain) add(b *bytes.Buffer, file string, l *line) chain {
	l.Log, l.Seq, l.Prev = strings.TrimSuffix(file, ".log"), c.seq+1, c.prev()
	start := b.Len()
	l.encode(b)
	return chain{l.Seq, sha256.Sum256(b.Bytes()[start : b.Len()-1])}
}
