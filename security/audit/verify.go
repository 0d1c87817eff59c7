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

// Chain is a log of one node as Verify found it.
type Chain struct {
	// Node wrote the log of that name: audit, table-admins or refusals.
	Node, Log string
	// First and Last are the numbers of its lines. Lines before First were rotated out, or removed.
	First, Last uint64
	// From and To are the times of those lines.
	From, To string
	// Sum is the SHA-256 of the last line, in hexadecimal.
	Sum string
	// Unchained counts lines of versions that had no chains, which are not verified.
	Unchained int
}

// Head is the end of a log, noted elsewhere at some time: line Seq had the SHA-256 Sum.
type Head struct {
	Log string
	Seq uint64
	Sum string
}

// ParseHead reads LOG:SEQ:SHA256.
func ParseHead(s string) (Head, error) {
	parts := strings.Split(s, ":")
	if len(parts) == 3 {
		seq, err := strconv.ParseUint(parts[1], 10, 64)
		sum, bad := hex.DecodeString(parts[2])
		if name := strings.TrimSuffix(parts[0], ".log"); err == nil && bad == nil && len(sum) == 32 && slices.Contains(logNames, name) {
			return Head{name, seq, strings.ToLower(parts[2])}, nil
		}
	}
	return Head{}, fmt.Errorf("%q is not of the form LOG:SEQ:SHA256, with the log %s", s, strings.Join(logNames, ", "))
}

// logNames are the logs of a node.
var logNames = []string{"audit", "table-admins", "refusals"}

// TamperError locates a place at which a log is not as it was written.
type TamperError struct {
	File   string
	Line   int // from 1; 0: the file as a whole
	Reason string
}

func (e *TamperError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// verifier reads lines of any number of chains.
type verifier struct {
	chains map[[2]string]*progress // by node and log
	heads  []Head
	met    []bool // of heads
	errs   []error
}

type progress struct {
	Chain
	end     chain
	started bool
}

// VerifyFolder verifies the logs in a folder, as Config.Dir names it, while nothing writes there or while a node does.
// Heads are ends of the logs that were noted before. Errors: *TamperError, maybe several; those of the disk.
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
			_ = f.Close() // it was read only
		}
		if err != nil {
			return nil, err
		}
		for _, p := range v.chains {
			if p.Log == name && p.First > 1 && len(files) < filesKept {
				v.tampered(filepath.Join(dir, name+".log"), 0, fmt.Sprintf("it begins with line %d and nothing was rotated out: lines were removed", p.First))
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("no audit log in %s: %w", dir, os.ErrNotExist)
	}
	return v.done(dir)
}

// Verify verifies lines of any number of nodes and logs, such as a sink got them. Name is for errors.
func Verify(name string, r io.Reader, heads []Head) ([]Chain, error) {
	v := newVerifier(heads)
	if err := v.read(name, "", r); err != nil {
		return nil, err
	}
	return v.done(name)
}

func newVerifier(heads []Head) *verifier {
	return &verifier{chains: map[[2]string]*progress{}, heads: heads, met: make([]bool, len(heads))}
}

// openLog opens the files of a log, the newest first, before any is read. If the node renames them meanwhile, one is met
// under two names.
func openLog(dir, name string) (files []*os.File, err error) {
	path := filepath.Join(dir, name)
	for n := 0; ; n++ {
		if n > 0 {
			path = filepath.Join(dir, name+"."+strconv.Itoa(n))
		}
		f, err := os.Open(path)
		switch {
		case errors.Is(err, os.ErrNotExist) && n == 0: // between two steps of a rotation
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

// read reads the lines of a file; of one log alone if that is not empty.
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
			v.tampered(name, n, "no record: "+err.Error())
			continue
		}
		if log == "" && l.Log == "" || log != "" && l.Seq != 0 && l.Log != log {
			v.tampered(name, n, fmt.Sprintf("record of the log %q is in that of another", l.Log))
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
		v.tampered(name, n, "number and prev do not belong together")
	case p.started && l.Seq != p.end.seq+1:
		v.tampered(name, n, fmt.Sprintf("line %d follows line %d: lines were removed, repeated or moved", l.Seq, p.end.seq))
	case p.started && l.Prev != p.end.prev():
		v.tampered(name, n, fmt.Sprintf("line %d does not hold the SHA-256 of the line before it: one of them was changed", l.Seq))
	}
	if l.Seq != 0 && p.First == 0 {
		p.First, p.From = l.Seq, l.Time
	}
	p.end, p.started = end, true
	p.Last, p.To, p.Sum = l.Seq, l.Time, hex.EncodeToString(end.sum[:])
	for i, h := range v.heads {
		if h.Log == log && h.Seq == l.Seq && l.Seq != 0 {
			v.met[i] = v.met[i] || h.Sum == p.Sum
		}
	}
}

// done returns the chains, and what is wrong with them.
func (v *verifier) done(name string) (all []Chain, err error) {
	for _, p := range v.chains {
		all = append(all, p.Chain)
	}
	slices.SortFunc(all, func(a, b Chain) int {
		return strings.Compare(a.Node+"\x00"+a.Log, b.Node+"\x00"+b.Log)
	})
	for i, h := range v.heads {
		if !v.met[i] {
			v.tampered(name, 0, fmt.Sprintf("line %d of the log %s with the SHA-256 %s is not there: it was changed, removed or rotated out", h.Seq, h.Log, h.Sum))
		}
	}
	return all, errors.Join(v.errs...)
}
