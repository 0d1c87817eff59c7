package metadata

import (
	"bytes"
	"fmt"

	"github.com/steledb/stele/internal/wire"
)

// RootPath is the lock service's file with the location of the root tablet.
const RootPath = "/root"

const (
	rootVersion = 1
	rootValues  = 5
)

// EncodeRoot returns the root tablet's row in the format of RootPath. Its generation is the file's.
func EncodeRoot(r *Row) []byte {
	return encode(func(e *wire.Encoder) {
		e.Array(rootValues)
		e.Uint(rootVersion)
		e.Str(r.Server)
		e.Str(r.Addr)
		e.Bin(r.Meta)
		appendStrings(e, r.Recoveries)
	})
}

// DecodeRoot decodes the contents of RootPath; generation is the file's. It ignores values that
// later versions append. The error is a *FormatError.
func DecodeRoot(b []byte, generation uint64) (*Row, error) {
	r := &Row{Table: TableID, End: RootEnd(), Generation: generation}
	version := uint64(rootVersion)
	err := decode(b, func(d *wire.Decoder) {
		d.Array()
		if version = d.Uint(); version != rootVersion {
			return
		}
		r.Server, r.Addr, r.Meta = d.Str(), d.Str(), bytes.Clone(d.Bytes())
		r.Recoveries = decodeStrings(d)
	})
	if err == nil && version != rootVersion {
		err = fmt.Errorf("version %d is unknown", version)
	}
	if err == nil {
		err = r.checkMeta(r.Meta)
	}
	if err != nil {
		return nil, &FormatError{What: RootPath, Err: err}
	}
	return r, nil
}
