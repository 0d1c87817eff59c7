package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Change is one row mutation of a change stream, or a deletion of a range of rows.
type Change = api.Change

// ChangePosition is where a reader of a change stream is in a range of rows: Start < row <= End, an empty one meaning no bound.
type ChangePosition struct {
	Start, End []byte
	Next       uint64
	// Families is the version of the table's families, if ChangePositionAfter has returned the position.
	Families uint64
}

// ChangesFrom selects where Table.Changes begins. The zero value is the time of the first Next that finds the stream. Rows that this Next could not
// reach are read from that time on by a later one, as exactly as the clocks of the client and the servers agree.
type ChangesFrom struct {
	// Since is the time of the first change.
	Since time.Time
	// Token is that of an earlier reader's Token. It takes precedence over the other fields.
	Token string
	// Until, unless it is zero, is the time of the last change. Next returns io.EOF after it.
	Until time.Time
	// Start and End are the rows: Start < row <= End, an empty one meaning no bound.
	Start, End []byte
	// Next is the position of these rows, of a ChangePosition. It takes precedence over Since.
	Next uint64
	// Clears adds the deletions of ranges of rows by Tables.ClearRows, as changes with Cleared set: each comes once for each row, between the changes of the row before
	// and after it, but it may come in parts, one for each tablet. Nodes of earlier versions reject it.
	Clears bool
}

// Changes reads the change stream of a table. It follows the table's tablets when they are split, merged or moved. Each change comes once, and those
// of a row come in their order. It is not safe for concurrent use.
type Changes struct {
	table     *Table
	id        uint64 // of the table
	since     int64  // until a range of rows has a position
	began     int64  // the first Next
	until     int64  // 0: there is no end
	positions []changePosition
	at        int // the next position to be read
	idle      int // positions without changes since the last change
	divided   int // positions that were divided after they had been read
	bytes     int64
	clears    bool
	rowsBytes int    // of the ends of ranges that were divided
	families  uint64 // version of those of the last result

	// The last result.
	last     int    // the position that it moved
	before   uint64 // and from where
	returned []Change
}

type changePosition struct {
	ChangePosition
	watermark int64
}

// ErrBadToken means that a text is not a token of a change stream.
var ErrBadToken = errors.New("malformed token of a change stream")

// Changes returns a reader of the table's change stream. The error is ErrBadToken.
func (t *Table) Changes(from ChangesFrom) (*Changes, error) {
	all := ChangePosition{Start: bytes.Clone(from.Start), End: bytes.Clone(from.End), Next: from.Next}
	c := &Changes{table: t, positions: []changePosition{{ChangePosition: all}}, clears: from.Clears}
	if !from.Until.IsZero() {
		c.until = max(from.Until.UnixMicro(), 1)
	}
	if from.Token != "" {
		return c, c.resume(from.Token)
	}
	if !from.Since.IsZero() {
		c.since = max(from.Since.UnixMicro(), 1)
	}
	return c, nil
}

// ChangePositions returns the present position of the change stream on each tablet, in order of their rows. Errors: those of Changes.Next.
func (t *Table) ChangePositions(ctx context.Context) ([]ChangePosition, error) {
	c := &Changes{table: t, positions: []changePosition{{}}}
	for c.at < len(c.positions) {
		if _, err := c.read(ctx); err != nil {
			return nil, err
		}
	}
	return c.Positions(), nil
}

// ChangePositionAfter returns the present position of the change stream on the tablet with the rows after a row. Errors: those of Changes.Next.
func (t *Table) ChangePositionAfter(ctx context.Context, row []byte) (ChangePosition, error) {
	c := &Changes{table: t, positions: []changePosition{{ChangePosition: ChangePosition{Start: row}}}}
	if _, err := c.read(ctx); err != nil {
		return ChangePosition{}, err
	}
	at := c.positions[0].ChangePosition
	at.Families = c.families
	return at, nil
}

// Drain calls each for the changes that were made before the call, and perhaps some later ones. It does not wait for more, and stops at an error of each.
// Errors: those of Next.
func (c *Changes) Drain(ctx context.Context, each func([]Change) error) error {
	c.at = 0
	for c.at < len(c.positions) {
		at := c.at
		got, err := c.read(ctx)
		if err != nil {
			return err
		}
		if len(got) > 0 {
			c.at = at // there may be more
			if err := each(got); err != nil {
				return err
			}
		}
	}
	return nil
}

// Bound bounds the memory of the results of Next, in bytes, at least 1: a change that takes more is a *RowTooLargeError, after which
// Next may be called with another bound. A result with mutations that take 32 times the bound is not accepted.
func (c *Changes) Bound(n int64) { c.bytes = max(n, 1) }

// readChangesTimeout bounds one request, besides its wait. A node reads at most 16 MiB of change files for it.
const readChangesTimeout = time.Minute

// changesWait is how long a round over all positions waits for a change.
const changesWait = time.Second

// Next returns the next changes. If there are none, it waits until there is one, at most for about two seconds, and then returns none; the
// Watermark may have risen. Errors: io.EOF after Until, ErrNoTable, api.ErrNoChangeStream, an *api.OutOfRangeError if changes from the position on
// are not kept any more, and those of Table.Get. After an error, Next may be called again.
func (c *Changes) Next(ctx context.Context) ([]Change, error) {
	return c.next(ctx, 2)
}

// Poll is Next that does not wait: it returns none if there are none yet.
func (c *Changes) Poll(ctx context.Context) ([]Change, error) {
	c.idle = 0
	return c.next(ctx, 1)
}

// next is Next in at most so many rounds over all positions, of which it waits in the second one.
func (c *Changes) next(ctx context.Context, rounds int) ([]Change, error) {
	if c.began == 0 {
		c.began = time.Now().UnixMicro()
	}
	for n := 0; n < rounds*len(c.positions); n++ {
		if c.ended() {
			return nil, io.EOF
		}
		got, err := c.read(ctx)
		if err != nil {
			c.failed(err)
		}
		if err != nil || len(got) > 0 {
			c.idle = 0
			return got, err
		}
		c.idle++
	}
	return nil, nil
}

// failed keeps the time of the first Next, which was to be the beginning, for rows that it did not reach: they may have changes until a later one does.
func (c *Changes) failed(err error) {
	switch {
	case errors.Is(err, ErrNoTable) || errors.Is(err, api.ErrNoChangeStream): // there are no changes yet
		c.began = 0
	case c.isNew():
		c.since = cmp.Or(c.since, c.began)
	}
}

// ended reports whether all changes up to Until were returned. If not, the next position is one that has others.
func (c *Changes) ended() bool {
	for range c.positions {
		c.at %= len(c.positions)
		if c.until == 0 || c.positions[c.at].watermark <= c.until {
			return false
		}
		c.at++
	}
	return true
}

// cut removes what is later than Until from a result, whose position then is before that. Of the changes with one sequence number all stay.
func (c *Changes) cut(r *api.ChangesResult) {
	if c.until == 0 {
		return
	}
	for i := range r.Changes {
		if x := &r.Changes[i]; x.Time > c.until && (i == 0 || r.Changes[i-1].Seq < x.Seq) {
			r.Next, r.Watermark, r.Changes = x.Seq, c.until+1, r.Changes[:i]
			return
		}
	}
}

// read reads at the next position. It waits if none had changes lately.
func (c *Changes) read(ctx context.Context) ([]Change, error) {
	c.at %= len(c.positions)
	p := &c.positions[c.at]
	req := api.ReadChangesRequest{Table: c.table.name, Start: p.Start, End: p.End, Next: p.Next, Since: c.since, ChangeBytes: c.bytes,
		Bytes: min(c.bytes, api.ChangesBytesMax), Clears: c.clears}
	if p.Next > 0 {
		req.Since = 0
		if c.idle >= len(c.positions) {
			req.Wait = max(changesWait/time.Duration(len(c.positions)), 10*time.Millisecond)
		}
	}
	result := api.ChangesResult{MemoryMax: c.bytes * pageMemoryRatio}
	decode := func(d *wire.Decoder) error {
		if n := int64(len(d.Rest())); c.bytes > 0 && n > c.bytes*pageBytesRatio+pageOverhead {
			return &AnswerError{Method: api.MethodReadChanges, Reason: fmt.Sprintf("%d bytes, for at most %d", n, c.bytes)}
		}
		return result.Decode(d)
	}
	ctx, cancel := context.WithTimeout(ctx, req.Wait+readChangesTimeout)
	defer cancel()
	k := call{method: api.MethodReadChanges, table: c.table.name, row: successor(p.Start), id: &req.TableID, onlyID: c.id, safe: true, keep: true,
		encode: req.Append, decode: decode}
	if err := c.table.client.calls.do(ctx, &k); err != nil {
		return nil, err
	}
	if err := c.check(p, &result); err != nil {
		return nil, err
	}
	c.id, c.families = req.TableID, result.Families
	c.cut(&result)
	c.advance(&result)
	return result.Changes, nil
}

// Bounds of what is accepted of a node.
const (
	// pageMemoryRatio is the memory of a decoded result, as a multiple of its bound: a mutation of four bytes takes 104.
	pageMemoryRatio = 32
	// pageBytesRatio and pageOverhead bound the bytes of a result in the same way: a node counts bytes of its log, which has names and operations once.
	pageBytesRatio, pageOverhead = 8, 64 << 10
	// rowsBytesMax bounds the row keys of all positions.
	rowsBytesMax = 16 << 20
)

// check returns an *AnswerError if a result does not follow on a position. Otherwise positions would go back, or increase in number without end.
func (c *Changes) check(p *changePosition, r *api.ChangesResult) error {
	bad := func(format string, args ...any) error {
		return &AnswerError{Method: api.MethodReadChanges, Reason: fmt.Sprintf(format, args...)}
	}
	divides := !bytes.Equal(p.End, r.End)
	switch {
	case divides && (len(r.End) == 0 || !within(p.Start, p.End, r.End)):
		return bad("it ends at row %.64q, for rows after %.64q up to %.64q", r.End, p.Start, p.End)
	case divides && (len(c.positions) >= positionsMax || c.rowsBytes+len(r.End) > rowsBytesMax):
		return bad("the table has more than %d tablets, or their keys more than %d bytes", positionsMax, rowsBytesMax)
	case r.Next < max(p.Next, 1) || r.Next > math.MaxInt64:
		return bad("position %d after %d", r.Next, p.Next)
	case r.Watermark < 0:
		return bad("the time %d", r.Watermark)
	}
	last := p.Next
	for i := range r.Changes {
		x := &r.Changes[i]
		if x.Cleared != nil {
			if !c.clears || len(x.Row) > 0 || !rangeWithin(p.Start, r.End, x.Cleared) {
				return bad("a clear of rows %.64q to %.64q, for rows after %.64q up to %.64q", x.Cleared.Start, x.Cleared.End, p.Start, r.End)
			}
		} else if len(x.Row) == 0 || !within(p.Start, r.End, x.Row) {
			return bad("a change of row %.64q, for rows after %.64q up to %.64q", x.Row, p.Start, r.End)
		}
		if x.Seq < last || x.Seq >= r.Next || x.Time < 0 {
			return bad("a change at position %d, time %d, after %d and before %d", x.Seq, x.Time, last, r.Next)
		}
		last = x.Seq
	}
	if divides {
		c.rowsBytes += len(r.End)
	}
	return nil
}

// within reports whether start < row <= end, where an empty one means no bound.
func within(start, end, row []byte) bool {
	return (len(start) == 0 || bytes.Compare(row, start) > 0) && (len(end) == 0 || bytes.Compare(row, end) <= 0)
}

// rangeWithin reports whether a range is not empty and has only rows start < row <= end, where an empty one means no bound.
func rangeWithin(start, end []byte, rows *table.RowRange) bool {
	if len(rows.End) == 0 && len(end) > 0 || len(rows.End) > 0 && bytes.Compare(rows.Start, rows.End) >= 0 {
		return false
	}
	return (len(start) == 0 || bytes.Compare(rows.Start, start) > 0) && (len(end) == 0 || bytes.Compare(lastOf(rows), end) <= 0)
}

// lastOf returns a row at or above all of a range that has an end, and below its end if that is possible.
func lastOf(rows *table.RowRange) []byte {
	if n := len(rows.End) - 1; rows.End[n] == 0 {
		return rows.End[:n]
	}
	return rows.End
}

// last returns a row at or above that of a change, or those of a clear that has an end.
func last(x *Change) []byte {
	if x.Cleared != nil {
		return lastOf(x.Cleared)
	}
	return x.Row
}

// advance moves the current position past a result, and goes on to the next one.
func (c *Changes) advance(r *api.ChangesResult) {
	p := &c.positions[c.at]
	c.last, c.before, c.returned = c.at, p.Next, r.Changes
	if !bytes.Equal(p.End, r.End) { // another tablet has the rest
		if p.Next > 0 {
			c.divided++
		}
		rest := changePosition{ChangePosition: ChangePosition{Start: r.End, End: p.End, Next: p.Next}}
		p.End = r.End
		c.positions = slices.Insert(c.positions, c.at+1, rest)
		p = &c.positions[c.at]
	}
	p.Next, p.watermark = r.Next, max(p.watermark, r.Watermark)
	c.at++
}

// Watermark returns a time before which all changes were returned; zero if none is known yet. It is as exact as the clocks of the
// servers that the table's tablets were on.
func (c *Changes) Watermark() time.Time {
	least := c.positions[0].watermark
	for _, p := range c.positions {
		least = min(least, p.watermark)
	}
	if least == 0 {
		return time.Time{}
	}
	return time.UnixMicro(least)
}

// Positions returns the positions after the changes that were returned.
func (c *Changes) Positions() []ChangePosition {
	all := make([]ChangePosition, len(c.positions))
	for i := range c.positions {
		all[i] = c.positions[i].ChangePosition
	}
	return all
}

// Families returns the version of the table's families when the last result was made: it increases whenever one is added or dropped. 0 before the first Next.
func (c *Changes) Families() uint64 { return c.families }

// Divided returns how many times a range of rows was divided because its tablet was split. A program with several readers can then give
// each of Tokens to one of them.
func (c *Changes) Divided() int { return c.divided }

const tokenVersion = 1

// Token returns a text from which another reader continues after the changes that were returned. It is valid on every server, as long as
// the changes are kept.
func (c *Changes) Token() string { return c.tokenOf(c.positions) }

// Tokens returns a text for each of Positions, from which another reader continues with its rows.
func (c *Changes) Tokens() []string {
	all := make([]string, len(c.positions))
	for i := range c.positions {
		all[i] = c.tokenOf(c.positions[i : i+1])
	}
	return all
}

// TokenAfter is Token after the first n changes of those that the last Next returned.
func (c *Changes) TokenAfter(n int) string {
	if n >= len(c.returned) {
		return c.Token()
	}
	p := c.positions[c.last]
	p.Next = c.before
	parts := []changePosition{p}
	if n > 0 {
		parts[0].Next = c.returned[n-1].Seq + 1
	}
	if n > 0 && c.returned[n].Seq == c.returned[n-1].Seq { // after a merge, of a higher row
		rest := p
		at := last(&c.returned[n-1])
		parts[0].End, rest.Start, rest.Next = at, at, c.returned[n].Seq
		parts = append(parts, rest)
	}
	return c.tokenOf(slices.Concat(c.positions[:c.last], parts, c.positions[c.last+1:]))
}

// JoinChangeTokens returns a token for a reader of the rows of all tokens, which are of one table. Rows of several tokens are read from the
// earliest of their positions on. The error is ErrBadToken.
func JoinChangeTokens(tokens ...string) (string, error) {
	var all Changes
	for i, token := range tokens {
		var one Changes
		if err := one.resume(token); err != nil {
			return "", err
		}
		if i > 0 && one.id != all.id {
			return "", fmt.Errorf("%w: they are of different tables", ErrBadToken)
		}
		if i > 0 && one.since != all.since && (one.isNew() || all.isNew()) {
			return "", fmt.Errorf("%w: they begin at different times", ErrBadToken)
		}
		all.id, all.since = one.id, one.since
		all.positions = append(all.positions, one.positions...)
	}
	all.positions = disjoint(all.positions, all.since)
	if !all.ordered() {
		return "", ErrBadToken
	}
	return all.Token(), nil
}

// disjoint returns positions in the order of their rows. Rows with several positions, of readers that begin at since, have the earliest one.
func disjoint(positions []changePosition, since int64) (all []changePosition) {
	slices.SortFunc(positions, func(a, b changePosition) int { return cmp.Compare(startOf(&a, since), startOf(&b, since)) })
	keys := boundaries(positions)
	at := make([]*changePosition, len(keys)) // the position of the rows above a key, up to the next one
	free := make([]int, len(keys)+1)         // leads to the first row without a position
	for i := range free {
		free[i] = i
	}
	firstFree := func(i int) int {
		for free[i] != i {
			free[i] = free[free[i]]
			i = free[i]
		}
		return i
	}
	for i := range positions {
		p, end := &positions[i], len(keys)
		if len(p.End) > 0 {
			end, _ = slices.BinarySearchFunc(keys, p.End, bytes.Compare)
		}
		first, _ := slices.BinarySearchFunc(keys, p.Start, bytes.Compare)
		for k := firstFree(first); k < end; k = firstFree(k) {
			at[k], free[k] = p, k+1
		}
	}
	for k, p := range at {
		if p == nil { // rows of none of them
			continue
		}
		if k == 0 || at[k-1] != p {
			all = append(all, changePosition{ChangePosition: ChangePosition{Start: keys[k], Next: p.Next}})
		}
		if all[len(all)-1].End = nil; k+1 < len(keys) {
			all[len(all)-1].End = keys[k+1]
		}
	}
	return all
}

// boundaries returns the keys at which ranges of rows begin or end, in order.
func boundaries(positions []changePosition) (keys [][]byte) {
	for i := range positions {
		keys = append(keys, positions[i].Start)
		if end := positions[i].End; len(end) > 0 {
			keys = append(keys, end)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// startOf returns the order in which positions of readers that begin at since come. Without since, a reader that has read nothing begins last: at its first Next.
func startOf(p *changePosition, since int64) uint64 {
	if since == 0 {
		return p.Next - 1
	}
	return p.Next
}

// isNew reports whether a range of rows has no position yet.
func (c *Changes) isNew() bool {
	return slices.ContainsFunc(c.positions, func(p changePosition) bool { return p.Next == 0 })
}

// positionsMax is the largest number of positions in a token.
const positionsMax = 100_000

// ordered reports whether there are positions, of ranges that ascend and do not overlap.
func (c *Changes) ordered() bool {
	for i := range c.positions {
		p := &c.positions[i]
		if len(p.End) > 0 && bytes.Compare(p.Start, p.End) >= 0 || p.Next > math.MaxInt64 {
			return false
		}
		if i > 0 && (len(c.positions[i-1].End) == 0 || bytes.Compare(c.positions[i-1].End, p.Start) > 0) {
			return false
		}
	}
	return len(c.positions) > 0 && len(c.positions) <= positionsMax
}

func (c *Changes) tokenOf(positions []changePosition) string {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(4)
	e.Int(tokenVersion)
	e.Uint(c.id)
	e.Int(c.since)
	e.Array(len(positions))
	for i := range positions {
		p := &positions[i]
		e.Array(3)
		e.Bin(p.Start)
		e.Bin(p.End)
		e.Uint(p.Next)
	}
	return base64.RawURLEncoding.EncodeToString(e.Bytes())
}

// resume continues at a token. The error is ErrBadToken.
func (c *Changes) resume(token string) error {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadToken, err)
	}
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return ErrBadToken
	}
	d := wire.NewDecoder(b)
	if d.Array() != 4 || d.Int() != tokenVersion {
		return ErrBadToken
	}
	c.id, c.since, c.positions = d.Uint(), d.Int(), nil
	for range d.ArrayMax(positionsMax) {
		if d.Err() != nil || d.Array() != 3 {
			return ErrBadToken
		}
		c.positions = append(c.positions, changePosition{ChangePosition: ChangePosition{Start: bytes.Clone(d.Bytes()), End: bytes.Clone(d.Bytes()), Next: d.Uint()}})
	}
	if d.Err() != nil || c.since < 0 || !c.ordered() {
		return ErrBadToken
	}
	return nil
}
