package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// streamRetention is how long changes are kept: longer than any clock of a server is ahead.
const streamRetention = 7 * 24 * time.Hour

// streamTokens has the tokens of all readers of change streams.
type streamTokens struct {
	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		tokens map[string][]streamToken // by table; the first is that of the beginning
	}
}

// streamToken is a token of a reader after a call.
type streamToken struct {
	text string
	op   int // the number of the call
}

func (s *streamTokens) add(table string, t streamToken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.tokens == nil {
		s.mu.tokens = map[string][]streamToken{}
	}
	s.mu.tokens[table] = append(s.mu.tokens[table], t)
}

// of returns the tokens of a table's stream.
func (s *streamTokens) of(table string) []streamToken {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tokens[table]
}

// streamClient is the part of a client that reads change streams.
type streamClient struct{ *worker }

// streamReader reads the change stream of a table.
type streamReader struct {
	*worker
	table   string
	changes *client.Changes
	after   int // the number of the last call
}

// begin turns the change stream of a new table on, and reads it until its beginning is known. It retries until the context ends.
func (c *streamClient) begin(ctx context.Context, t *TablePlan) bool {
	for ctx.Err() == nil {
		_, err := c.db.Tables().Alter(ctx, t.Name, table.Change{Op: table.ChangeStream, Retention: streamRetention})
		if err != nil {
			c.pause(ctx, 500*time.Millisecond)
			continue
		}
		r := &streamReader{worker: c.worker, table: t.Name, after: -1}
		if r.changes, err = c.db.Table(t.Name).Changes(client.ChangesFrom{}); err != nil {
			panic("BUG: " + err.Error()) // there is no token
		}
		if r.next(ctx).Outcome == OK {
			return true
		}
	}
	return false
}

// follow reads a change stream for some calls, mostly from the last token on.
func (c *streamClient) follow(all context.Context) {
	t := c.table()
	if !t.Stream {
		return
	}
	tokens := c.tokens.of(t.Name)
	token := tokens[len(tokens)-1]
	if c.r.IntN(4) == 0 {
		token = tokens[c.r.IntN(len(tokens))]
	}
	r := c.from(t, token)
	for range 1 + c.r.IntN(8) {
		ctx, cancel := c.timeout(all)
		r.next(ctx)
		cancel()
		if c.pause(all, c.plan.Pace); all.Err() != nil {
			return
		}
	}
}

// from returns a reader that continues at a token.
func (c *streamClient) from(t *TablePlan, token streamToken) *streamReader {
	r := &streamReader{worker: c.worker, table: t.Name, after: token.op}
	var err error
	if r.changes, err = c.db.Table(t.Name).Changes(client.ChangesFrom{Token: token.text}); err != nil {
		c.history.Violation(c.number, fmt.Sprintf("a token of the change stream of table %s: %v", t.Name, err))
		panic("BUG: no reader")
	}
	return r
}

// drain reads all change streams to their ends, from their beginnings and from the last tokens.
func (c *streamClient) drain(ctx context.Context) error {
	for i := range c.plan.Tables {
		t := &c.plan.Tables[i]
		if !t.Stream {
			continue
		}
		tokens := c.tokens.of(t.Name)
		for _, token := range []streamToken{tokens[0], tokens[len(tokens)-1]} {
			if err := c.from(t, token).drain(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain reads until there is no further change.
func (r *streamReader) drain(ctx context.Context) error {
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, time.Minute)
		op := r.next(once)
		cancel()
		switch {
		case op.Bad != "" || op.Outcome == OK && len(op.Stream.Changes) == 0:
			return nil
		case op.Outcome != OK:
			pause(ctx, 500*time.Millisecond)
		}
	}
	return fmt.Errorf("read the change stream of table %s in the end: %w", r.table, ctx.Err())
}

// next makes one call. If it succeeds, the next one continues after it.
func (r *streamReader) next(ctx context.Context) Op {
	op := r.begin(Op{Kind: ReadStream, Table: r.table, Stream: &Stream{After: r.after}})
	found, err := r.changes.Next(ctx)
	result := Stream{After: r.after}
	for i := range found {
		result.Changes = append(result.Changes, r.history.streamChange(&found[i]))
	}
	op.Stream = &result
	var lost *api.OutOfRangeError
	if errors.As(err, &lost) || errors.Is(err, api.ErrNoChangeStream) || errors.Is(err, client.ErrBadToken) {
		op.Bad = "the change stream of a table is not complete: " + err.Error()
	}
	if op = r.history.End(op, err); op.Outcome == OK {
		r.after = op.Number
		r.tokens.add(r.table, streamToken{r.changes.Token(), op.Number})
	}
	return op
}

// streamChange returns a change of a stream as the history has it.
func (h *History) streamChange(c *client.Change) StreamChange {
	result := StreamChange{Row: string(c.Row), Seq: c.Seq}
	if c.Cleared != nil {
		result.Cleared = &Scan{Start: string(c.Cleared.Start), End: string(c.Cleared.End)}
	}
	for i := range c.Mutations {
		result.Changes = append(result.Changes, h.change(&c.Mutations[i]))
	}
	return result
}

// change returns a part of a mutation as the history has it.
func (h *History) change(m *table.Mutation) Change {
	column := m.Family + ":" + string(m.Qualifier)
	switch m.Op {
	case table.OpSet:
		return Change{Kind: Set, Column: column, Value: valueText(m.Family, string(m.Qualifier), m.Value), At: h.stamp(m.Timestamp)}
	case table.OpAdd, table.OpMerge:
		x := Change{Kind: Operand, Column: column, At: h.stamp(m.Timestamp), Value: valueText(m.Family, counterQualifier, m.Value)}
		if m.Op == table.OpAdd && isSketch(m.Family) {
			x.Value = sketchText(sketchOf(int64(binary.BigEndian.Uint64(m.Value))))
		}
		return x
	case table.OpDeleteFamily:
		return Change{Kind: DeleteCells, Column: m.Family}
	case table.OpDeleteRow:
		return Change{Kind: DeleteRow}
	}
	x := Change{Kind: DeleteVersions, Column: column, From: math.MinInt64, To: math.MaxInt64}
	if m.Start > 0 {
		x.From = h.stamp(m.Start)
	}
	if at, bounded := m.End.Bound(); bounded {
		x.To = h.stamp(at)
	}
	return x
}
