package table

import (
	"bytes"

	"github.com/steledb/stele/internal/wire"
)

// AppendViewChange encodes a change of a view: the view as in a schema, and with the key etag that of the view before.
func AppendViewChange(e *wire.Encoder, c *ViewChange) {
	e.Map(2)
	e.Str("etag")
	e.Str(c.Etag)
	e.Str("view")
	appendView(e, &c.View)
}

// DecodeViewChange decodes a change of a view. Errors: ErrBadEncoding, which wraps ErrLimit.
func DecodeViewChange(d *wire.Decoder) (ViewChange, error) {
	var c ViewChange
	err := decodeMap(d, func(key string) (err error) {
		switch key {
		case "etag":
			c.Etag = d.Str()
		case "view":
			c.View, err = decodeView(d)
		default:
			d.Skip()
		}
		return err
	})
	return c, finish(d, decodeError(d, "change of a view", err))
}

// appendView encodes a view as a map with the keys name, id, rows, families and, if it is set, deletion_protection. A family is an array:
// its name, qualifiers and prefixes of qualifiers.
func appendView(e *wire.Encoder, v *View) {
	n := 4
	if v.Protected {
		n++
	}
	e.Map(n)
	e.Str("name")
	e.Str(v.Name)
	e.Str("id")
	e.Uint(uint64(v.ID))
	if v.Protected {
		e.Str("deletion_protection")
		e.Bool(true)
	}
	e.Str("rows")
	appendKeys(e, v.Rows)
	e.Str("families")
	e.Array(len(v.Families))
	for i := range v.Families {
		f := &v.Families[i]
		e.Array(3)
		e.Str(f.Name)
		appendKeys(e, f.Qualifiers)
		appendKeys(e, f.Prefixes)
	}
}

func appendKeys(e *wire.Encoder, keys [][]byte) {
	e.Array(len(keys))
	for _, k := range keys {
		e.Bin(k)
	}
}

func decodeView(d *wire.Decoder) (View, error) {
	var v View
	err := decodeMap(d, func(key string) (err error) {
		switch key {
		case "name":
			v.Name = d.Str()
		case "id":
			id := d.Uint()
			if id >= 1<<32 {
				return errForm("%d is over 32 bits", id)
			}
			v.ID = uint32(id)
		case "deletion_protection":
			v.Protected = d.Bool()
		case "rows":
			v.Rows, err = decodeKeys(d)
		case "families":
			v.Families, err = decodeList(d, "families of a view", ViewBytesMax/8, decodeViewFamily)
		default:
			d.Skip()
		}
		return err
	})
	return v, decodeError(d, "view", err)
}

func decodeViewFamily(d *wire.Decoder) (f ViewFamily, err error) {
	if n := d.Array(); n != 3 && d.Err() == nil {
		return f, errForm("a family of a view has %d elements, want 3", n)
	}
	f.Name = d.Str()
	if f.Qualifiers, err = decodeKeys(d); err == nil {
		f.Prefixes, err = decodeKeys(d)
	}
	return f, err
}

func decodeKeys(d *wire.Decoder) ([][]byte, error) {
	return decodeList(d, "keys of a view", ViewBytesMax/8, func(d *wire.Decoder) ([]byte, error) {
		return bytes.Clone(d.Bytes()), d.Err()
	})
}
