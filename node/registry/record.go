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
	d, more, err := wire.BeginRecord(b, "record of a cluster", recordVersion, recordValues)
	if err != nil {
		return nil, err
	}
	r := &record{}
	for range d.ArrayMax(api.ClusterAddrsMax) {
		r.addrs = append(r.addrs, d.Str())
	}
	r.secret = append([]byte(nil), d.Bytes()...)
	r.console, r.id, r.by = d.Str(), d.Str(), d.Str()
	for range more {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("record of a cluster: %w", err)
	}
	return r, nil
}
