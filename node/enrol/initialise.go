package enrol

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
)

// Initialise makes a node without data the first node of a new cluster with certificates: it writes the node's id and its
// directory of keys. It returns the credential of the cluster's first principal, which is stored nowhere else. Hosts are further
// names and addresses of this host that clients verify, besides its name and those of loopback. Errors: keydir.ErrExists, those of
// the data directories and of the disk.
func Initialise(dataDirs []string, keys string, hosts []string, now time.Time) (*pki.Credential, error) {
	return InitialiseSealed(dataDirs, keys, "", hosts, now)
}

// InitialiseSealed is Initialise with the authority's key encrypted by a passphrase, if it is not empty.
func InitialiseSealed(dataDirs []string, keys, passphrase string, hosts []string, now time.Time) (*pki.Credential, error) {
	return InitialiseFS(vfs.OS(), dataDirs, keys, passphrase, hosts, now)
}

// InitialiseFS is InitialiseSealed on another file system.
func InitialiseFS(fsys vfs.FS, dataDirs []string, keys, passphrase string, hosts []string, now time.Time) (*pki.Credential, error) {
	if len(dataDirs) == 0 {
		return nil, errors.New("no data folder given")
	}
	if _, err := identity.InspectFS(fsys, dataDirs); err != nil {
		return nil, err
	}
	unlock, err := identity.LockFS(fsys, dataDirs)
	if err != nil {
		return nil, err
	}
	defer unlock()
	folders, err := identity.InspectFS(fsys, dataDirs)
	if err != nil {
		return nil, err
	}
	if !folders.Fresh() {
		return nil, fmt.Errorf("data folder %s belongs to cluster %s: a new cluster needs empty folders", dataDirs[0], folders.Cluster)
	}
	if err := folders.Write(); err != nil { // before the certificate that names the node
		return nil, err
	}
	return keydir.On(fsys, keys).SealedBy(passphrase).Init(folders.Node, certs.WithLocal(hosts, ""), now)
}
