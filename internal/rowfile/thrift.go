package rowfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Types of fields in Thrift's compact protocol, as far as they are distinguished.
const (
	thriftStop   = 0
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// thriftDepthMax bounds how deep structs and lists are nested.
const thriftDepthMax = 16

// errThriftShort means that a struct ends behind the bytes that were read.
var errThriftShort = errors.New("it ends too early")

// thrift reads structs in Thrift's compact protocol, and allocates nothing.
type thrift struct {
	b     []byte
	depth int
}

// structure reads a struct, and calls field for each of its fields, which reads it or returns false: then it is skipped.
func (t *thrift) structure(field func(id int, kind byte) (bool, error)) error {
	if t.depth++; t.depth > thriftDepthMax {
		return fmt.Errorf("structs are nested more than %d deep", thriftDepthMax)
	}
	defer func() { t.depth-- }()
	for id := 0; ; {
		head, err := t.byte()
		if err != nil || head == thriftStop {
			return err
		}
		if delta := int(head >> 4); delta != 0 {
			id += delta
		} else if id, err = t.int(); err != nil {
			return err
		}
		kind := head & 0xf
		known, err := field(id, kind)
		if err == nil && !known {
			err = t.skip(kind)
		}
		if err != nil {
			return err
		}
	}
}

func (t *thrift) byte() (byte, error) {
	if len(t.b) == 0 {
		return 0, errThriftShort
	}
	b := t.b[0]
	t.b = t.b[1:]
	return b, nil
}

// size reads the length of a list or of bytes, each of whose elements has at least a byte.
func (t *thrift) size() (int, error) {
	v, n := binary.Uvarint(t.b)
	if n <= 0 || v > uint64(len(t.b)-n) {
		return 0, errThriftShort
	}
	t.b = t.b[n:]
	return int(v), nil
}

func (t *thrift) int() (int, error) {
	v, n := binary.Varint(t.b)
	if n <= 0 {
		return 0, errThriftShort
	}
	t.b = t.b[n:]
	return int(v), nil
}

func (t *thrift) bytes() ([]byte, error) {
	n, err := t.size()
	if err != nil {
		return nil, err
	}
	v := t.b[:n]
	t.b = t.b[n:]
	return v, nil
}

// list reads the head of a list: the number and the type of its elements.
func (t *thrift) list() (n int, kind byte, err error) {
	head, err := t.byte()
	if err != nil {
		return 0, 0, err
	}
	if n = int(head >> 4); n == 15 {
		n, err = t.size()
	} else if n > len(t.b) {
		err = errThriftShort
	}
	return n, head & 0xf, err
}

// structs reads a list of structs, and calls each for each of them.
func (t *thrift) structs(each func() error) error {
	n, kind, err := t.list()
	if err == nil && kind != thriftStruct {
		err = fmt.Errorf("a list of type %d, want structs", kind)
	}
	for ; n > 0 && err == nil; n-- {
		err = each()
	}
	return err
}

// skip skips a value of a field.
func (t *thrift) skip(kind byte) (err error) {
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		_, err = t.byte()
	case thriftI16, thriftI32, thriftI64:
		_, err = t.int()
	case thriftDouble:
		if len(t.b) < 8 {
			return errThriftShort
		}
		t.b = t.b[8:]
	case thriftBinary:
		_, err = t.bytes()
	case thriftList, thriftSet:
		err = t.skipList()
	case thriftMap:
		err = t.skipMap()
	case thriftStruct:
		err = t.structure(func(int, byte) (bool, error) { return false, nil })
	default:
		err = fmt.Errorf("type %d of a field is not known", kind)
	}
	return err
}

// element skips an element of a list or map, where a boolean has a byte.
func (t *thrift) element(kind byte) error {
	if kind == thriftTrue || kind == thriftFalse {
		kind = thriftByte
	}
	return t.skip(kind)
}

func (t *thrift) skipList() error {
	if t.depth++; t.depth > thriftDepthMax {
		return fmt.Errorf("lists are nested more than %d deep", thriftDepthMax)
	}
	defer func() { t.depth-- }()
	n, kind, err := t.list()
	for ; n > 0 && err == nil; n-- {
		err = t.element(kind)
	}
	return err
}

func (t *thrift) skipMap() error {
	if t.depth++; t.depth > thriftDepthMax {
		return fmt.Errorf("maps are nested more than %d deep", thriftDepthMax)
	}
	defer func() { t.depth-- }()
	n, err := t.size()
	if err != nil || n == 0 {
		return err
	}
	kinds, err := t.byte()
	for ; n > 0 && err == nil; n-- {
		if err = t.element(kinds >> 4); err == nil {
			err = t.element(kinds & 0xf)
		}
	}
	return err
}
