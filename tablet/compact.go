package tablet

import (
	"bytes"
	"context"
	"errors"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/gcpolicy"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/tombstone"
)

// compaction copies the live entries of some memtables or files. What it may drop depends on
// whether it has the complete history:
//
//   - Any compaction folds the operands of a cell in its input into one, with the key of the last: the result is the same whichever
//     operands are folded first, and a deletion that covers the last of them covers all (T14).
//   - Any compaction drops entries that a later commit in the same input replaced, deleted whole or
//     outranked: the remaining entries decide everything that such an entry could still decide.
//   - With the complete history (the oldest file of the group is among the input) it also drops the
//     deletions themselves, and judges columns in which ranges of versions were deleted. Without it
//     those columns stay as they are: a version in an older file may depend on their history.
//
// Entries of dropped families, and those that a range tombstone hides, are always dropped. The tombstone
// stays in the metadata until no entry is left that it could hide.
type compaction struct {
	ctx         context.Context // ends the compaction; may be nil
	merge       merge
	judge       gcpolicy.Judge
	schema      *schema
	cleared     tombstone.List // hide entries of the input
	fullHistory bool
	emit        func(f *family, key, value []byte) error // f is nil for a row deletion

	key               []byte // prefix of the current key: row, family and column part
	rowEnd, familyEnd int
	rowFull           uint64
	family            *family
	familyFull        uint64
	versions          []gcpolicy.Version
	start             []byte      // key of the first of versions
	held              []heldEntry // entries of versions, if they are small together
	operand           operand
}

// operand is the fold of the operands of a cell that a compaction has read so far.
type operand struct {
	there, folded bool // folded: its value is that of fold
	key, value    []byte
	fold          table.Fold
}

// heldEntry is an entry held until its column is judged.
type heldEntry struct{ key, value []byte }

// holdBytes bounds the entries of a column that a compaction holds until it is judged, in bytes.
// Entries of larger columns are read a second time. Most columns are far smaller and need no second
// seek in each file.
const holdBytes = 1 << 20

// checkRows is the number of rows after which a compaction checks its context.
const checkRows = 64

// errColumnChanged means that a source returned different entries for a second read. Files are
// immutable, so this is a bug or faulty memory.
var errColumnChanged = errors.New("column changed between two reads of a compaction")

func (c *compaction) run() error {
	c.merge.first()
	for rows := 0; c.merge.valid(); rows++ {
		if rows%checkRows == 0 && c.ctx != nil && c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		key := c.merge.key()
		n := ikey.RowLen(key)
		if n < 0 {
			return ikey.ErrBadKey
		}
		c.key, c.rowEnd, c.rowFull = append(c.key[:0], key[:n]...), n, 0
		if len(c.cleared) > 0 {
			c.rowFull = c.cleared.Of(ikey.RowKey(c.key))
		}
		if err := c.row(); err != nil {
			return err
		}
	}
	return c.merge.err
}

func (c *compaction) row() error {
	for c.merge.valid() {
		key := c.merge.key()
		if !bytes.HasPrefix(key, c.key[:c.rowEnd]) {
			return nil
		}
		p, err := ikey.SplitAfterRow(key, c.rowEnd)
		if err != nil {
			return err
		}
		if p.Kind == ikey.KindDeleteRow {
			if seq := ikey.Seq(key); seq > c.rowFull { // the latest one covers all that earlier ones do
				c.rowFull = seq
				if err := c.keepDeletion(nil, key, nil); err != nil {
					return err
				}
			}
			c.merge.next()
			continue
		}
		part := key[p.Row:p.Family]
		c.key, c.familyEnd = append(c.key[:c.rowEnd], part...), p.Family
		c.family = c.schema.storedFamily(part)
		if err := c.oneFamily(); err != nil {
			return err
		}
	}
	return nil
}

func (c *compaction) oneFamily() error {
	c.familyFull = c.rowFull
	if c.family == tokenFamily {
		c.familyFull = c.cleared.Of(ikey.RowKey(c.key[:c.rowEnd])) // deletions of rows leave tokens
	}
	for c.merge.valid() {
		key := c.merge.key()
		if !bytes.HasPrefix(key, c.key[:c.familyEnd]) {
			return nil
		}
		if c.family == nil { // dropped
			c.merge.next()
			continue
		}
		p, err := ikey.SplitAfterFamily(key, c.rowEnd, c.familyEnd)
		if err != nil {
			return err
		}
		if p.Kind == ikey.KindDeleteFamily {
			if seq := ikey.Seq(key); seq > c.familyFull {
				c.familyFull = seq
				if err := c.keepDeletion(c.family, key, nil); err != nil {
					return err
				}
			}
			c.merge.next()
			continue
		}
		c.key = append(c.key[:c.familyEnd], key[p.Family:p.Column]...)
		switch {
		case c.family.Aggregate != table.AggregateNone:
			err = c.aggregate()
		case p.Kind == ikey.KindOperand: // not a cell
			err = ikey.ErrBadKey
		default:
			err = c.column()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *compaction) column() error {
	c.judge.BeginColumn(&c.family.policy, c.familyFull)
	for c.merge.valid() {
		key := c.merge.key()
		if !bytes.HasPrefix(key, c.key) {
			return nil
		}
		seq := ikey.Seq(key)
		if ikey.IsDeleteColumn(key, len(c.key)) {
			if err := c.columnDeletion(key, seq); err != nil {
				return err
			}
			continue
		}
		if c.judge.NeedsHistory() {
			return c.history()
		}
		switch c.judge.Next(ikey.Timestamp(key), seq) {
		case gcpolicy.Live:
			if err := c.emit(c.family, key, c.merge.value()); err != nil {
				return err
			}
		case gcpolicy.Rest:
			c.skipColumn()
			return nil
		}
		c.merge.next()
	}
	return nil
}

// columnDeletion copies the deletion at the current entry, unless an earlier one covers it.
func (c *compaction) columnDeletion(key []byte, seq uint64) error {
	start, end, err := ikey.Range(c.merge.value())
	if err != nil {
		return err
	}
	if !c.judge.IsCovered(seq) {
		c.judge.Delete(start, end, seq)
		if err := c.keepDeletion(c.family, key, c.merge.value()); err != nil {
			return err
		}
	}
	c.merge.next()
	return nil
}

// aggregate is column for a column of operands.
func (c *compaction) aggregate() error {
	c.judge.BeginColumn(&c.family.policy, c.familyFull)
	for c.merge.valid() {
		key := c.merge.key()
		if !bytes.HasPrefix(key, c.key) {
			break
		}
		seq := ikey.Seq(key)
		if ikey.IsDeleteColumn(key, len(c.key)) {
			if err := c.columnDeletion(key, seq); err != nil {
				return err
			}
			continue
		}
		if !ikey.IsOperand(key, len(c.key)) {
			return ikey.ErrBadKey
		}
		if c.judge.NeedsHistory() {
			return c.history()
		}
		verdict := c.judge.Next(ikey.Timestamp(key), seq)
		if verdict == gcpolicy.Rest {
			c.skipColumn()
			break
		}
		if err := c.keep(verdict, key); err != nil {
			return err
		}
		c.merge.next()
	}
	return c.flushOperand()
}

// keep copies the current entry if its verdict is that it lives. An operand is held until the next cell or flushOperand.
func (c *compaction) keep(verdict gcpolicy.Verdict, key []byte) error {
	if verdict != gcpolicy.Live && verdict != gcpolicy.Merged {
		return nil
	}
	return c.keepValue(verdict, key, c.merge.value())
}

// keepValue is keep for an entry that was read before.
func (c *compaction) keepValue(verdict gcpolicy.Verdict, key, value []byte) error {
	if c.merge.err != nil {
		return c.merge.err
	}
	o := &c.operand
	switch {
	case verdict == gcpolicy.Merged && planted.On(planted.OperandDropped):
		return nil
	case verdict == gcpolicy.Merged:
		if !o.folded {
			o.folded = true
			if err := o.fold.Begin(c.family.Aggregate, o.value); err != nil {
				return err
			}
		}
		return o.fold.Add(value)
	case verdict != gcpolicy.Live:
		return nil
	case c.family.Aggregate == table.AggregateNone:
		return c.emit(c.family, key, value)
	}
	err := c.flushOperand()
	o.there, o.folded, o.key, o.value = true, false, append(o.key[:0], key...), value
	return err
}

// flushOperand writes the operand that is held, if there is one.
func (c *compaction) flushOperand() error {
	o := &c.operand
	if !o.there {
		return nil
	}
	value := o.value
	if o.folded {
		value = o.fold.Value()
	}
	o.there, o.value = false, nil
	return c.emit(c.family, o.key, value)
}

func (c *compaction) skipColumn() {
	for c.merge.valid() && bytes.HasPrefix(c.merge.key(), c.key) {
		c.merge.next()
	}
}

// history copies the versions of a column with deleted ranges whose policy counts versions.
func (c *compaction) history() error {
	if !c.fullHistory {
		for c.merge.valid() && bytes.HasPrefix(c.merge.key(), c.key) {
			if !c.judge.IsCovered(ikey.Seq(c.merge.key())) {
				if err := c.emit(c.family, c.merge.key(), c.merge.value()); err != nil {
					return err
				}
			}
			c.merge.next()
		}
		return nil
	}
	held := c.collect()
	if c.merge.err != nil {
		return c.merge.err
	}
	// A compaction checks its context where it writes, so this need not be interrupted.
	if err := c.judge.Settle(context.Background(), c.versions); err != nil {
		return err
	}
	if !held {
		return c.copyAgain()
	}
	defer clear(c.held)
	for i := range c.versions {
		if err := c.keepValue(c.versions[i].Verdict, c.held[i].key, c.held[i].value); err != nil {
			return err
		}
	}
	return c.flushOperand()
}

// collect advances past a column's versions and records them. It reports whether it holds their
// entries too.
func (c *compaction) collect() bool {
	c.versions, c.held = c.versions[:0], c.held[:0]
	c.start = append(c.start[:0], c.merge.key()...)
	bytesHeld := 0
	for c.merge.valid() && bytes.HasPrefix(c.merge.key(), c.key) {
		key := c.merge.key()
		c.versions = append(c.versions, gcpolicy.Version{Timestamp: ikey.Timestamp(key), Seq: ikey.Seq(key)})
		if bytesHeld <= holdBytes {
			value := c.merge.value()
			if bytesHeld += len(key) + len(value) + versionBytes; bytesHeld > holdBytes {
				clear(c.held)
			} else {
				c.held = append(c.held, heldEntry{key: bytes.Clone(key), value: value})
			}
		}
		c.merge.next()
	}
	return bytesHeld <= holdBytes
}

// copyAgain seeks back to the first of the judged versions and copies those that live.
func (c *compaction) copyAgain() error {
	c.merge.seekGE(c.start)
	for i := range c.versions {
		if !c.merge.valid() {
			if c.merge.err != nil {
				return c.merge.err
			}
			return errColumnChanged
		}
		v, key := &c.versions[i], c.merge.key()
		if !bytes.HasPrefix(key, c.key) || ikey.Timestamp(key) != v.Timestamp || ikey.Seq(key) != v.Seq {
			return errColumnChanged
		}
		if err := c.keep(v.Verdict, key); err != nil {
			return err
		}
		c.merge.next()
	}
	return c.flushOperand()
}

func (c *compaction) keepDeletion(f *family, key, value []byte) error {
	if c.fullHistory {
		return nil
	}
	return c.emit(f, key, value)
}
