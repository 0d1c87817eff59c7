package journal

import (
	"encoding/binary"
	"errors"

	"github.com/hashicorp/raft"
)

// entryBytes is the size of an entry in the file, about.
func entryBytes(e *raft.Log) int64 { return int64(len(e.Data)+len(e.Extensions)) + 64 }

func setBody(key, value []byte) []byte {
	return appendBytes(appendBytes([]byte{kindSet}, key), value)
}

func appendBytes(b, field []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(field))), field...)
}

func appendEntry(b []byte, e *raft.Log) []byte {
	b = binary.BigEndian.AppendUint64(b, e.Index)
	b = binary.BigEndian.AppendUint64(b, e.Term)
	b = append(b, byte(e.Type))
	at, _ := e.AppendedAt.MarshalBinary() // fails only for a zone with odd seconds
	b = appendBytes(b, at)
	b = appendBytes(b, e.Data)
	return appendBytes(b, e.Extensions)
}

// decoder decodes a body. After an error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err == nil && n > len(d.b) {
		d.err = errors.New("record is too short")
	}
	if d.err != nil {
		return make([]byte, min(n, 8))
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uint() uint64 { return binary.BigEndian.Uint64(d.take(8)) }

// bytes returns a copy, nil if it is empty.
func (d *decoder) bytes() []byte {
	n := binary.BigEndian.Uint32(d.take(4))
	return append([]byte(nil), d.take(int(n))...)
}

func (d *decoder) entry() (e raft.Log) {
	e.Index, e.Term, e.Type = d.uint(), d.uint(), raft.LogType(d.take(1)[0])
	if at := d.bytes(); d.err == nil {
		d.err = e.AppendedAt.UnmarshalBinary(at)
	}
	e.Data, e.Extensions = d.bytes(), d.bytes()
	return e
}
