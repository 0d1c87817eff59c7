package table

import "github.com/steledb/stele/internal/wire"

// AppendCell encodes a cell as [family, qualifier, timestamp, value], followed by an array of its
// labels if it has any.
func AppendCell(e *wire.Encoder, c *Cell) {
	n := 4
	if len(c.Labels) > 0 {
		n = 5
	}
	e.Array(n)
	e.Str(c.Family)
	e.Bin(c.Qualifier)
	e.Int(c.Timestamp)
	e.Bin(c.Value)
	if n == 5 {
		e.Array(len(c.Labels))
		for _, l := range c.Labels {
			e.Str(l)
		}
	}
}

// AppendRow encodes a row as [key, [cell…]].
func AppendRow(e *wire.Encoder, key []byte, cells []Cell) {
	e.Array(2)
	e.Bin(key)
	e.Array(len(cells))
	for i := range cells {
		AppendCell(e, &cells[i])
	}
}

// decodeCell decodes a cell into c and ignores further elements. Qualifier and Value alias the
// input. Family and labels reuse the strings of like, usually the previous cell, where they are
// equal.
func decodeCell(d *wire.Decoder, c *Cell, in *Interner, like *Cell) error {
	n, err := elements(d, "form", 4, unlimited)
	if err != nil {
		return err
	}
	family, labels := like.Family, like.Labels
	c.Family = in.reuse(d.Bytes(), family)
	if d.Err() != nil {
		return decodeError(d, "family", nil)
	}
	c.Qualifier = d.Bytes()
	if d.Err() != nil {
		return decodeError(d, "qualifier", nil)
	}
	c.Timestamp = d.Int()
	if d.Err() != nil {
		return decodeError(d, "timestamp", nil)
	}
	c.Value = d.Bytes()
	c.Labels = nil
	if d.Err() != nil {
		return decodeError(d, "value", nil)
	}
	for i := 4; i < n; i++ {
		if i == 4 {
			c.Labels = decodeLabels(d, in, labels)
		} else {
			d.Skip()
		}
	}
	return decodeError(d, "labels", nil)
}

// decodeLabels decodes labels. It returns last if that has the same single label.
func decodeLabels(d *wire.Decoder, in *Interner, last []string) []string {
	n := d.Array()
	if n == 0 {
		return nil
	}
	if n == 1 && len(last) == 1 {
		if s := in.reuse(d.Bytes(), last[0]); s != last[0] {
			return []string{s}
		}
		return last
	}
	labels := grow([]string(nil), d, n, 1)
	for range n {
		labels = append(labels, in.Intern(d.Bytes()))
	}
	return labels
}

// DecodeRow decodes a row into r and reuses the memory of r.Cells. Key, qualifiers and values alias
// the input. Adjacent cells share the strings of their families and labels. Errors: ErrBadEncoding.
func DecodeRow(d *wire.Decoder, r *Row, in *Interner) error {
	return finish(d, decodeRow(d, r, in))
}

func decodeRow(d *wire.Decoder, r *Row, in *Interner) error {
	n, err := elements(d, "row", 2, unlimited)
	if err != nil {
		return err
	}
	r.Key = d.Bytes()
	if d.Err() != nil {
		return decodeError(d, "row key", nil)
	}
	cells := d.Array()
	if d.Err() != nil {
		return decodeError(d, "cells", nil)
	}
	// A cell takes at least 5 bytes.
	r.Cells = grow(r.Cells, d, cells, 5)
	like := &Cell{}
	for i := range cells {
		if len(r.Cells) < cap(r.Cells) {
			r.Cells = r.Cells[:i+1]
		} else {
			r.Cells = append(r.Cells, Cell{})
		}
		c := &r.Cells[i]
		if i == 0 {
			like = c // the previous row's cell in the same memory
		}
		if err := decodeCell(d, c, in, like); err != nil {
			r.Cells = r.Cells[:i]
			return decodeError(d, indexed("cell", i), err)
		}
		like = c
	}
	for range n - 2 {
		d.Skip()
	}
	return decodeError(d, "row", nil)
}
