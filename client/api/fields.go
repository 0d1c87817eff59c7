package api

import (
	"bytes"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// A field is a key of a result that is a map, and a pointer to its value, or a *list. It
// serves results that are asked for now and then; those of the data are written by hand.
type field struct {
	key   string
	value any
}

// fields are all of a result, in the order in which they are written. New ones may come
// anywhere: readers go by the key, and skip those that they do not know.
type fields []field

func (fs fields) append(e *wire.Encoder) {
	e.Map(len(fs))
	fs.appendValues(e)
}

// appendValues writes keys and values of a map that is begun already.
func (fs fields) appendValues(e *wire.Encoder) {
	for _, f := range fs {
		e.Str(f.key)
		switch v := f.value.(type) {
		case *string:
			e.Str(*v)
		case *[]byte:
			e.Bin(*v)
		case *bool:
			e.Bool(*v)
		case *int:
			e.Int(int64(*v))
		case *int64:
			e.Int(*v)
		case *uint64:
			e.Uint(*v)
		case *float64:
			e.Float(*v)
		case *time.Duration: // in seconds
			e.Float(v.Seconds())
		case **table.Schema:
			table.AppendSchema(e, *v)
		case interface{ append(*wire.Encoder) }:
			v.append(e)
		default:
			panic("BUG: no form for the field " + f.key)
		}
	}
}

func (fs fields) decode(d *wire.Decoder) error {
	return decodeMap(d, func(key string) bool {
		for _, f := range fs {
			if f.key == key {
				f.decode(d)
				return true
			}
		}
		return false
	})
}

func (f field) decode(d *wire.Decoder) {
	switch v := f.value.(type) {
	case *string:
		*v = d.Str()
	case *[]byte:
		*v = bytes.Clone(d.Bytes())
	case *bool:
		*v = d.Bool()
	case *int:
		*v = int(d.Int())
	case *int64:
		*v = d.Int()
	case *uint64:
		*v = d.Uint()
	case *float64:
		*v = d.Float()
	case *time.Duration:
		*v = time.Duration(d.Float() * float64(time.Second))
	case **table.Schema:
		*v, _ = table.DecodeSchema(d, nil) // its error sticks to d
	case interface{ decode(*wire.Decoder) error }:
		stick(d, v.decode(d))
	default:
		panic("BUG: no form for the field " + f.key)
	}
}

// A list is an array of maps.
type list[T any] struct {
	all    *[]T
	fields func(*T) fields
	what   string // it is called in errors
	max    int64  // elements that a client reads
	empty  T      // what an element is before it is read
}

func (l *list[T]) append(e *wire.Encoder) {
	e.Array(len(*l.all))
	for i := range *l.all {
		l.fields(&(*l.all)[i]).append(e)
	}
}

func (l *list[T]) decode(d *wire.Decoder) error {
	return decodeList(d, l.what, l.max, func() error {
		*l.all = append(*l.all, l.empty)
		return l.fields(&(*l.all)[len(*l.all)-1]).decode(d)
	})
}
