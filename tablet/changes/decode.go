package changes

import (
	"bytes"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/logbody"
)

// Change is one row mutation of a change stream, or a clear.
type Change struct {
	Row       []byte
	Seq       uint64 // increases with each change of the row
	Time      int64  // of the commit, in µs
	Mutations []table.Mutation
	FamilyIDs []uint32 // of the families of Mutations; 0 for the deletion of a row
	// Cleared is the range of a clear, which has no row and no mutations; otherwise nil.
	Cleared *table.RowRange
}

// overhead is what a change, and each mutation, takes besides its bytes.
const overhead = 64

// Bytes estimates the memory of the change.
func (c *Change) Bytes() int64 {
	n := overhead + len(c.Row)
	if c.Cleared != nil {
		n += len(c.Cleared.Start) + len(c.Cleared.End)
	}
	for i := range c.Mutations {
		m := &c.Mutations[i]
		n += overhead + len(m.Family) + len(m.Qualifier) + len(m.Value)
	}
	return int64(n)
}

// Decode returns a record as a Change without the mutations of families that visible rejects, such as dropped ones. A value
// aliases the record's body, and nothing else does. The error wraps logbody.ErrBadBody or ikey.ErrBadKey.
func (r *Record) Decode(visible func(name []byte, id uint32) bool) (c Change, err error) {
	row, err := logbody.Row(r.Body)
	if err != nil {
		return c, err
	}
	c = Change{Row: bytes.Clone(row), Seq: r.First, Time: r.Time}
	_, err = logbody.EachEntry(r.Body, r.First, r.Time, nil, func(key, value []byte) error {
		m, id, ok, err := mutation(key, value, visible)
		if err == nil && ok {
			c.Mutations, c.FamilyIDs = append(c.Mutations, m), append(c.FamilyIDs, id)
		}
		return err
	})
	return c, err
}

// mutation returns the mutation that an entry was made of, and the id of its family. ok is false if visible rejects the family.
func mutation(key, value []byte, visible func(name []byte, id uint32) bool) (m table.Mutation, id uint32, ok bool, err error) {
	p, err := ikey.Split(key)
	if err != nil {
		return m, 0, false, err
	}
	if p.Kind == ikey.KindDeleteRow {
		return table.DeleteRow(), 0, true, nil
	}
	part := key[p.Row:p.Family]
	if id = ikey.FamilyID(part); !visible(ikey.FamilyName(part), id) {
		return m, 0, false, nil
	}
	family := string(ikey.FamilyName(part))
	switch p.Kind {
	case ikey.KindDeleteFamily:
		return table.DeleteFamily(family), id, true, nil
	case ikey.KindDeleteColumn:
		start, end, err := ikey.Range(value)
		if err != nil {
			return m, 0, false, err
		}
		m = table.DeleteColumn(family, bytes.Clone(ikey.Qualifier(key[p.Family:p.Column])))
		m.Start = start
		if end != 0 {
			m.End = table.Before(end)
		}
		return m, id, true, nil
	case ikey.KindOperand: // of add or merge, which have the same effect
		m = table.Merge(family, bytes.Clone(ikey.Qualifier(key[p.Family:p.Column])), ikey.Timestamp(key), value)
		return m, id, true, nil
	}
	return table.Set(family, bytes.Clone(ikey.Qualifier(key[p.Family:p.Column])), ikey.Timestamp(key), value), id, true, nil
}
