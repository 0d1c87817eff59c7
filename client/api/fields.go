package api

import (
	"bytes"
	"reflect"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// A field is a key of a result map, and a pointer to its value or a *list. Fields are used for
// results of administrative methods; results with data are encoded by hand.
type field struct {
	key   string
	value any
}

// fields holds the fields of a result, in the order in which they are encoded. New ones may be
// added anywhere: readers go by the key and skip unknown ones.
type fields []field

func (fs fields) append(e *wire.Encoder) {
	e.Map(len(fs))
	fs.appendValues(e)
}

// appendValues encodes keys and values; the map's header must have been written.
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
			panic("BUG: no encoding for the field " + f.key)
		}
	}
}

// decode decodes a result whose fields have their zero values. Lists are empty and not nil
// afterwards, so that JSON spells them [].
func (fs fields) decode(d *wire.Decoder) error {
	for _, f := range fs {
		if l, ok := f.value.(interface{ clear() }); ok {
			l.clear()
		}
	}
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
		*v, _ = table.DecodeSchema(d, nil) // its error is the decoder's
	case interface{ decode(*wire.Decoder) error }:
		setErr(d, v.decode(d))
	default:
		panic("BUG: no encoding for the field " + f.key)
	}
}

// A list is an array of maps.
type list[T any] struct {
	all    *[]T
	fields func(*T) fields
	what   string // name in errors
	max    int64  // number of elements that a client accepts
	empty  T      // initial value of a decoded element
}

func (l *list[T]) clear() { *l.all = []T{} }

func (l *list[T]) append(e *wire.Encoder) {
	e.Array(len(*l.all))
	for i := range *l.all {
		l.fields(&(*l.all)[i]).append(e)
	}
}

// listMemoryRatio bounds the memory of a decoded list: so many times its bytes. An element has the names of its fields, so it takes about as many bytes as memory;
// one of a node of an earlier version has fewer fields.
const listMemoryRatio = 16

func (l *list[T]) decode(d *wire.Decoder) error {
	size, before := int(reflect.TypeFor[T]().Size()), len(d.Rest())
	return decodeList(d, l.what, l.max, func() error {
		*l.all = append(*l.all, l.empty)
		if err := l.fields(&(*l.all)[len(*l.all)-1]).decode(d); err != nil {
			return err
		}
		if read := before - len(d.Rest()); len(*l.all)*size > listMemoryRatio*read {
			return malformed("%d elements in %d bytes", len(*l.all), read)
		}
		return nil
	})
}
