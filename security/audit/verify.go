package audit

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Chain is the result of Verify for one log of one node.
type Chain struct {
	// Node is the id of the node. Log is the name of the log: audit, table-admins or refusals.
	Node, Log string
	// First and Last are the numbers of the first and last lines found. Lines before First were
	// rotated out or removed.
	First, Last uint64
	// From and To are the times of those lines.
	From, To string
	// Sum is the SHA-256 of the last line, in hexadecimal.
	Sum string
	// Unchained is the number of lines written by versions without chains. They are not verified.
	Unchained int
}

// Head is the head of a log that was recorded elsewhere: line Seq had the SHA-256 Sum.
type Head struct {
	Log string
	Seq uint64
	Sum string
}

// ParseHead parses LOG:SEQ:SHA256.
func ParseHead(s string) (Head, error) {
	parts := strings.Split(s, ":")
	if len(parts) == 3 {
		seq, err := strconv.ParseUint(parts[1], 10, 64)
		sum, bad := hex.DecodeString(parts[2])
		if name := strings.TrimSuffix(parts[0], ".log"); err == nil && bad == nil && len(sum) == 32 && slices.Contains(logNames, name) {
			return Head{name, seq, strings.ToLower(parts[2])}, nil
		}
	}
	return Head{}, fmt.Errorf("bad head %q: expected LOG:SEQ:SHA256, where LOG is one of %s", s, strings.Join(logNames, ", "))
}

// logNames are the names of a node's logs.
var logNames = []string{"audit", "table-admins", "refusals"}

// TamperError locates a place where a log is not as it was written.
type TamperError struct {
	File   string
	Line   int // from 1; 0 for the file as a whole
	Reason string
}

func (e *TamperError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// verifier verifies lines of any number of chains.
type verifier struct {
	chains map[[2]string]*progress // by node and log
	heads  []Head
	found  []bool // whether each head was found
	errs   []error
}

type progress struct {
	Chain
	end     chain
	started bool
}

// VerifyFolder verifies the logs in a directory of the form of Config.Dir. A node may be writing to
// it. heads are chain heads that were recorded earlier. Errors: one or more *TamperError; those of
// the disk.
func VerifyFolder(dir string, heads []Head) ([]Chain, error) {
	v := newVerifier(heads)
	found := false
	for _, name := range logNames {
		files, err := openLog(dir, name+".log")
		if err != nil {
			return nil, err
		}
		for _, f := range slices.Backward(files) {
			found = true
			if readErr := v.read(f.Name(), name, f); err == nil {
				err = readErr
			}
			_ = f.Close() // opened for reading only
		}
		if err != nil {
			return nil, err
		}
		for _, p := range v.chains {
			if p.Log == name && p.First > 1 && len(files) < filesKept {
				v.tampered(filepath.Join(dir, name+".log"), 0, fmt.Sprintf("the log starts at line %d but nothing was rotated out: lines were removed", p.First))
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("no audit log in %s: %w", dir, os.ErrNotExist)
	}
	return v.done(dir)
}

// Verify verifies lines of any number of nodes and logs, such as the content of a sink. name is
// used in errors.
func Verify(name string, r io.Reader, heads []Head) ([]Chain, error) {
	v := newVerifier(heads)
	if err := v.read(name, "", r); err != nil {
		return nil, err
	}
	return v.done(name)
}

func newVerifier(heads []Head) *verifier {
	return &verifier{chains: map[[2]string]*progress{}, heads: heads, found: make([]bool, len(heads))}
}

// openLog opens all files of a log, newest first, before any is read. If the node rotates them
// meanwhile, the same file may be opened under two names; it is returned once.
func openLog(dir, name string) (files []*os.File, err error) {
	path := filepath.Join(dir, name)
	for n := 0; ; n++ {
		if n > 0 {
			path = filepath.Join(dir, name+"."+strconv.Itoa(n))
		}
		f, err := os.Open(path)
		switch {
		case errors.Is(err, os.ErrNotExist) && n == 0: // in the middle of a rotation
			continue
		case errors.Is(err, os.ErrNotExist):
			return files, nil
		case err != nil:
			for _, f := range files {
				_ = f.Close()
			}
			return nil, err
		}
		if len(files) > 0 && sameFile(files[len(files)-1], f) {
			_ = f.Close()
			continue
		}
		files = append(files, f)
	}
}

func sameFile(a, b *os.File) bool {
	one, err := a.Stat()
	other, bad := b.Stat()
	return err == nil && bad == nil && os.SameFile(one, other)
}

// read verifies the lines of a file. If log is not empty, all lines must belong to that log.
func (v *verifier) read(name, log string, r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), batchBytesMax)
	n := 0
	for lines.Scan() {
		n++
		text := lines.Bytes()
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			v.tampered(name, n, "not a record: "+err.Error())
			continue
		}
		if log == "" && l.Log == "" || log != "" && l.Seq != 0 && l.Log != log {
			v.tampered(name, n, fmt.Sprintf("record belongs to another log: %q", l.Log))
			continue
		}
		v.line(name, n, &l, text, log)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

func (v *verifier) tampered(name string, line int, reason string) {
	if len(v.errs) < 100 {
		v.errs = append(v.errs, &TamperError{name, line, reason})
	}
}

// line verifies one line.
func (v *verifier) line(name string, n int, l *line, text []byte, log string) {
	if log == "" {
		log = l.Log
	}
	p := v.chains[[2]string{l.Node, log}]
	if p == nil {
		p = &progress{Chain: Chain{Node: l.Node, Log: log}}
		v.chains[[2]string{l.Node, log}] = p
	}
	end := chainAfter(text)
	switch {
	case l.Seq == 0 && (p.First != 0 || l.Prev != ""):
		v.tampered(name, n, fmt.Sprintf("line without a number follows line %d", p.Last))
	case l.Seq == 0:
		p.Unchained++
	case l.Seq > 1 && l.Prev == "":
		v.tampered(name, n, "seq and prev are inconsistent")
	case p.started && l.Seq != p.end.seq+1:
		v.tampered(name, n, fmt.Sprintf("line %d follows line %d: lines were removed, repeated or moved", l.Seq, p.end.seq))
	case p.started && l.Prev != p.end.prev():
		v.tampered(name, n, fmt.Sprintf("line %d does not have the SHA-256 of the previous line: one of them was changed", l.Seq))
	}
	if l.Seq != 0 && p.First == 0 {
		p.First, p.From = l.Seq, l.Time
	}
	p.end, p.started = end, true
	p.Last, p.To, p.Sum = l.Seq, l.Time, hex.EncodeToString(end.sum[:])
	for i, h := range v.heads {
		if h.Log == log && h.Seq == l.Seq && l.Seq != 0 {
			v.found[i] = v.found[i] || h.Sum == p.Sum
		}
	}
}

// done returns the chains, and the errors found in them.
func (v *verifier) done(name string) (all []Chain, err error) {
	for _, p := range v.chains {
		all = append(all, p.Chain)
	}
	slices.SortFunc(all, func(a, b Chain) int {
		return strings.Compare(a.Node+"\x00"+a.Log, b.Node+"\x00"+b.Log)
	})
	for i, h := range v.heads {
		if !v.found[i] {
			v.tampered(name, 0, fmt.Sprintf("no line %d with SHA-256 %s in log %s: it was changed, removed or rotated out", h.Seq, h.Sum, h.Log))
		}
	}
	return all, errors.Join(v.errs...)
}
