package schemabundles

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Dir is the directory of the records in the lock service.
const Dir = "/schemabundles"

// File returns the path of the record of a table.
func File(table uint64) string { return Dir + "/" + strconv.FormatUint(table, 10) }

// The content of a table's file:
//
//	[1, [[id, descriptors], …]]
//
// by id, where descriptors is an encoded google.protobuf.FileDescriptorSet. A table without bundles has no file.
const (
	recordVersion = 1
	recordValues  = 2
	bundleValues  = 2
)

func encode(all []api.SchemaBundle) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(recordValues)
	e.Int(recordVersion)
	e.Array(len(all))
	for i := range all {
		e.Array(bundleValues)
		e.Str(all[i].ID)
		e.Bin(all[i].Descriptors)
	}
	return append([]byte(nil), e.Bytes()...)
}

func decode(b []byte) ([]api.SchemaBundle, error) {
	const what = "record of schema bundles"
	d, more, err := wire.BeginRecord(b, what, recordVersion, recordValues)
	if err != nil {
		return nil, err
	}
	all := make([]api.SchemaBundle, d.ArrayMax(api.SchemaBundlesMax))
	for i := range all {
		n := d.Array()
		all[i].ID = d.Str()
		all[i].Descriptors = append([]byte(nil), d.Bytes()...)
		all[i].Etag = etag(all[i].Descriptors)
		for range n - bundleValues { // of later versions
			d.Skip()
		}
	}
	for range more {
		d.Skip()
	}
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return all, nil
}

// etagBytes is how much of a hash is an etag.
const etagBytes = 8

// etag returns the etag of a bundle with those descriptors.
func etag(descriptors []byte) string {
	hash := sha256.Sum256(descriptors)
	return hex.EncodeToString(hash[:etagBytes])
}
