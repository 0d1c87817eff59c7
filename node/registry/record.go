package registry

import (
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Dir is the directory of the records in the lock service.
const Dir = "/clusters"

func recordPath(name string) string { return Dir + "/" + name }

// record is the content of a cluster's file:
//
//	[1, [address…], secret, console, id, by]
type record struct {
	addrs   []string
	secret  []byte // credential
	console string // URL; empty: unknown
	id      string // of the cluster
	by      string // the user who added it; empty on an open cluster
}

const (
	recordVersion = 1
	recordValues  = 6
)

func (r *record) encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(recordValues)
	e.Int(recordVersion)
	e.Array(len(r.addrs))
	for _, addr := range r.addrs {
		e.Str(addr)
	}
	e.Bin(r.secret)
	for _, text := range []string{r.console, r.id, r.by} {
		e.Str(text)
	}
	return append([]byte(nil), e.Bytes()...)
}

func decodeRecord(b []byte) (*record, error) {
	if n, err := wire.Check(b, wire.Limits{}); err != nil || n != len(b) {
		return nil, fmt.Errorf("record of a cluster: %d of %d bytes are a message: %v", n, len(b), err)
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	if v := d.Int(); d.Err() == nil && (v != recordVersion || n < recordValues) {
		return nil, fmt.Errorf("record of a cluster: %d values of version %d, want at least %d of version %d", n, v, recordValues, recordVersion)
	}
	r := &record{}
	for range d.ArrayMax(api.ClusterAddrsMax) {
		r.addrs = append(r.addrs, d.Str())
	}
	r.secret = append([]byte(nil), d.Bytes()...)
	r.console, r.id, r.by = d.Str(), d.Str(), d.Str()
	for range n - recordValues {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("record of a cluster: %w", err)
	}
	return r, nil
}
