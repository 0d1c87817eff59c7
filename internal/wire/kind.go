package wire

import "encoding/binary"

// Kind is the kind of a MessagePack value.
type Kind uint8

// Kinds. KindEnd means that no value is left or that its header is truncated. KindInvalid is the
// byte 0xc1, which MessagePack does not use.
const (
	KindEnd Kind = iota
	KindInvalid
	KindNil
	KindBool
	KindInt
	KindFloat
	KindBytes
	KindStr
	KindArray
	KindMap
	KindExt
)

var kindNames = [...]string{
	"end", "invalid", "nil", "bool", "int", "float", "bin", "str", "array", "map", "ext",
}

func (k Kind) String() string { return kindNames[k] }

// header is the decoded header of a value.
type header struct {
	kind     Kind
	size     int    // bytes of the header itself; for scalars, of the whole value
	body     uint64 // bytes that follow, of a byte string or extension
	children uint64 // values that follow, in an array or map
}

// form describes one of the lead bytes 0xc0 to 0xdf.
type form struct {
	kind  Kind
	width int8 // bytes of a length or count field
	fixed int8 // bytes of scalar, or of extension type and fixed extension, after it
}

var forms = [32]form{
	{KindNil, 0, 0}, {KindInvalid, 0, 0}, {KindBool, 0, 0}, {KindBool, 0, 0},
	{KindBytes, 1, 0}, {KindBytes, 2, 0}, {KindBytes, 4, 0},
	{KindExt, 1, 1}, {KindExt, 2, 1}, {KindExt, 4, 1},
	{KindFloat, 0, 4}, {KindFloat, 0, 8},
	{KindInt, 0, 1}, {KindInt, 0, 2}, {KindInt, 0, 4}, {KindInt, 0, 8},
	{KindInt, 0, 1}, {KindInt, 0, 2}, {KindInt, 0, 4}, {KindInt, 0, 8},
	{KindExt, 0, 2}, {KindExt, 0, 3}, {KindExt, 0, 5}, {KindExt, 0, 9}, {KindExt, 0, 17},
	{KindStr, 1, 0}, {KindStr, 2, 0}, {KindStr, 4, 0},
	{KindArray, 2, 0}, {KindArray, 4, 0}, {KindMap, 2, 0}, {KindMap, 4, 0},
}

// headOf decodes the header at the start of b. If b is too short for the header's length field, the
// kind is KindEnd and size is the number of bytes required.
func headOf(b []byte) header {
	if len(b) == 0 {
		return header{size: 1}
	}
	switch c := b[0]; {
	case c < 0x80 || c >= 0xe0:
		return header{kind: KindInt, size: 1}
	case c < 0x90:
		return header{kind: KindMap, size: 1, children: 2 * uint64(c&15)}
	case c < 0xa0:
		return header{kind: KindArray, size: 1, children: uint64(c & 15)}
	case c < 0xc0:
		return header{kind: KindStr, size: 1, body: uint64(c & 31)}
	}
	f := forms[b[0]-0xc0]
	if len(b) <= int(f.width) {
		return header{size: 1 + int(f.width)}
	}
	var n uint64
	switch f.width {
	case 1:
		n = uint64(b[1])
	case 2:
		n = uint64(binary.BigEndian.Uint16(b[1:]))
	case 4:
		n = uint64(binary.BigEndian.Uint32(b[1:]))
	}
	h := header{kind: f.kind, size: 1 + int(f.width) + int(f.fixed)}
	switch f.kind {
	case KindArray:
		h.children = n
	case KindMap:
		h.children = 2 * n
	default:
		h.body = n
	}
	return h
}
