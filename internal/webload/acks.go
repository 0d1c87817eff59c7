package webload

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// An ack is a line of the acknowledgement file: a cell that the table acknowledged. Rows and
// columns of a Webtable are text.
type ack struct {
	Row       string `json:"row"`
	Column    string `json:"column"`
	Timestamp int64  `json:"timestamp"` // µs
	Bytes     int    `json:"bytes"`     // of the value
	SHA256    string `json:"sha256"`    // of the value, in hex
}

// An AckWriter writes an acknowledgement file: JSON, one cell per line. It is safe for concurrent
// use. A nil AckWriter writes nothing.
type AckWriter struct {
	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		out *bufio.Writer
		err error // sticky: nothing is written after a failed write
	}
}

// NewAckWriter returns an AckWriter that writes to w.
func NewAckWriter(w io.Writer) *AckWriter {
	a := &AckWriter{}
	a.mu.out = bufio.NewWriterSize(w, 64<<10)
	return a
}

// write records acknowledged changes.
func (a *AckWriter) write(changes []*rowChange) error {
	if a == nil || len(changes) == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range changes {
		for i := range c.sets {
			if a.mu.err == nil {
				a.mu.err = writeAck(a.mu.out, c.row, &c.sets[i])
			}
		}
	}
	if a.mu.err == nil {
		a.mu.err = a.mu.out.Flush()
	}
	if a.mu.err != nil {
		return fmt.Errorf("write acknowledgement file: %w", a.mu.err)
	}
	return nil
}

func writeAck(out *bufio.Writer, row string, set *table.Mutation) error {
	line, err := json.Marshal(ack{
		Row: row, Column: set.Family + ":" + string(set.Qualifier), Timestamp: set.Timestamp,
		Bytes: len(set.Value), SHA256: checksum(set.Value),
	})
	if err == nil {
		_, err = out.Write(append(line, '\n'))
	}
	return err
}

func checksum(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:])
}

// A Verification is the result of comparing an acknowledgement file with the table.
type Verification struct {
	Cells   int64 `json:"cells"`   // compared
	Rows    int64 `json:"rows"`    // compared
	Bytes   int64 `json:"bytes"`   // of values
	Missing int64 `json:"missing"` // cells not in the table
	Wrong   int64 `json:"wrong"`   // cells with a different value
	// First describes the first missing or wrong cell.
	First string `json:"-"`
}

// Bounds of one batch of verification.
const (
	verifyRows  = 500
	verifyBytes = 8 << 20
	ackLineMax  = 1 << 20 // a row key and a qualifier, each byte escaped to at most six
)

// Verify reads an acknowledgement file and compares every cell in it with the table. It ignores an
// incomplete last line, left by an interrupted load. Cells that were deleted or garbage-collected
// count as missing. done is called with the progress. Errors: those of the client, of reading acks,
// and one for a malformed line.
func Verify(ctx context.Context, t *client.Table, acks io.Reader, done func(Verification)) (Verification, error) {
	v := verifier{table: t, cells: map[string][]ack{}}
	in := bufio.NewReaderSize(acks, ackLineMax)
	for line := 1; ; line++ {
		text, err := in.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return v.sum, fmt.Errorf("read acknowledgement file, line %d: %w", line, err)
		}
		var a ack
		if err := json.Unmarshal(text, &a); err != nil || a.Row == "" || a.SHA256 == "" {
			return v.sum, fmt.Errorf("line %d: not a record of an acknowledgement file", line)
		}
		v.add(a)
		if len(v.rows) >= verifyRows || v.bytes >= verifyBytes {
			if err := v.check(ctx); err != nil {
				return v.sum, err
			}
			done(v.sum)
		}
	}
	err := v.check(ctx)
	done(v.sum)
	return v.sum, err
}

// verifier collects cells by row.
type verifier struct {
	table    *client.Table
	rows     []string
	cells    map[string][]ack
	families []string // families to read: to verify links, pages need not be read
	bytes    int64
	sum      Verification
}

func (v *verifier) add(a ack) {
	if v.cells[a.Row] == nil {
		v.rows = append(v.rows, a.Row)
	}
	v.cells[a.Row] = append(v.cells[a.Row], a)
	v.bytes += int64(a.Bytes)
	family, _, _ := strings.Cut(a.Column, ":")
	if !slices.Contains(v.families, family) {
		v.families = append(v.families, family)
	}
}

// check compares the collected cells with the table.
func (v *verifier) check(ctx context.Context) error {
	if len(v.rows) == 0 {
		return nil
	}
	found, err := v.table.GetAll(ctx, v.rows, client.Families(v.families...))
	if err != nil {
		return err
	}
	for i, row := range v.rows {
		v.checkRow(v.cells[row], found[i])
	}
	v.rows, v.families, v.bytes = v.rows[:0], v.families[:0], 0
	clear(v.cells)
	return nil
}

func (v *verifier) checkRow(want []ack, row *table.Row) {
	type version struct {
		column    string
		timestamp int64
	}
	values := map[version][]byte{}
	if row != nil {
		for i := range row.Cells {
			c := &row.Cells[i]
			values[version{client.ColumnName(c), c.Timestamp}] = c.Value
		}
	}
	v.sum.Rows++
	for _, a := range want {
		v.sum.Cells++
		v.sum.Bytes += int64(a.Bytes)
		value, ok := values[version{a.Column, a.Timestamp}]
		problem := ""
		switch {
		case !ok:
			v.sum.Missing++
			problem = "is missing"
		case len(value) != a.Bytes || checksum(value) != a.SHA256:
			v.sum.Wrong++
			problem = fmt.Sprintf("has a different value: %d bytes, %d acknowledged", len(value), a.Bytes)
		}
		if problem != "" && v.sum.First == "" {
			v.sum.First = fmt.Sprintf("row %s, column %s, timestamp %d %s", a.Row, a.Column, a.Timestamp, problem)
		}
	}
}
