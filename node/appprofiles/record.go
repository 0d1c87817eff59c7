package appprofiles

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Dir is the directory of the records in the lock service.
const Dir = "/profiles"

func recordPath(id string) string { return Dir + "/" + id }

// The content of a profile's file:
//
//	[1, description, routing, transactional, names_cluster, priority]
//
// The last five values are those of api.AppProfile: two texts, two booleans and a text in this order. Its id is the name of the file.
const (
	recordVersion = 1
	recordValues  = 6
)

func encode(p *api.AppProfile) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(recordValues)
	e.Int(recordVersion)
	e.Str(p.Description)
	e.Str(p.Routing)
	e.Bool(p.Transactional)
	e.Bool(p.NamesCluster)
	e.Str(p.Priority)
	return append([]byte(nil), e.Bytes()...)
}

func decode(id string, b []byte) (*api.AppProfile, error) {
	d, more, err := wire.BeginRecord(b, "record of an app profile", recordVersion, recordValues)
	if err != nil {
		return nil, err
	}
	p := &api.AppProfile{ID: id, Description: d.Str(), Routing: d.Str(), Transactional: d.Bool(), NamesCluster: d.Bool(), Priority: d.Str(), Etag: etag(b)}
	for range more {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("record of an app profile: %w", err)
	}
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("record of an app profile: %w", err)
	}
	return p, nil
}

// etagBytes is how much of a hash is an etag.
const etagBytes = 8

// etag returns the etag of a profile with that record.
func etag(record []byte) string {
	hash := sha256.Sum256(record)
	return hex.EncodeToString(hash[:etagBytes])
}

// unchanged returns the default profile while it has no record.
func unchanged() *api.AppProfile {
	p := api.NewDefaultAppProfile()
	p.Etag = etag(encode(&p))
	return &p
}
