package namespace

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
)

// FoundRights writes the rights of a new cluster: its first principal has all. The epoch is written last, as in each change.
func (c *Catalog) FoundRights(ctx context.Context, now time.Time) error {
	first := &acl.Principal{Name: keydir.FirstPrincipal, Created: now}
	first.Covers(now.Add(pki.PrincipalLife)) // the certificate that "stele init" issued, a little earlier
	all, err := (&acl.Policy{Table: acl.Cluster}).Grant(acl.Grant{Principal: first.Name, Rights: acl.Admin})
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path string
		data []byte
	}{
		{acl.PrincipalFile(first.Name), first.Encode()},
		{acl.ClusterFile, all.Encode()},
		{acl.EpochFile, binary.BigEndian.AppendUint64(nil, 0)},
	} {
		_, err := c.Set(ctx, f.path, f.data, 0)
		if err != nil && !errors.Is(err, metaapi.ErrGeneration) { // an interrupted start has written it
			return err
		}
	}
	return nil
}
