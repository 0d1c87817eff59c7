package authztest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/security/acl"
)

// Rights are the files of users' rights in memory. It implements acl.Files. The zero value has no users.
type Rights struct {
	mu    sync.Mutex
	epoch uint64
	down  bool // nothing can be read
	files map[string][]byte
}

// Epoch implements acl.Files.
func (r *Rights) Epoch(context.Context) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return 0, errors.New("no leader")
	}
	return r.epoch, nil
}

// Holds implements acl.Files.
func (r *Rights) Holds(epoch uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.down && r.epoch == epoch
}

// Get implements acl.Files.
func (r *Rights) Get(_ context.Context, path string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.files[path], nil
}

// Set gives users their rights on the cluster, and removes all other users and their rights on the cluster.
func (r *Rights) Set(t testing.TB, users map[string]acl.Rights) {
	t.Helper()
	grants, files := []acl.Grant(nil), map[string][]byte{}
	for name, rights := range users {
		files[acl.PrincipalFile(name)] = (&acl.Principal{Name: name, Created: time.Now()}).Encode()
		if rights != 0 {
			grants = append(grants, acl.Grant{Principal: name, Rights: rights})
		}
	}
	files[acl.ClusterFile] = policy(t, acl.Cluster, grants)
	tables := strings.TrimSuffix(acl.TableFile(0), "0")
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, data := range r.files { // grants on tables stay
		if strings.HasPrefix(path, tables) {
			files[path] = data
		}
	}
	r.files, r.down = files, false
	r.epoch++
}

// SetTable replaces the grants on a table.
func (r *Rights) SetTable(t testing.TB, table uint64, grants ...acl.Grant) {
	t.Helper()
	r.Put(acl.TableFile(table), policy(t, table, grants))
}

// Put replaces a file.
func (r *Rights) Put(path string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files == nil {
		r.files = map[string][]byte{}
	}
	r.files[path] = data
	r.epoch++
}

func policy(t testing.TB, table uint64, grants []acl.Grant) []byte {
	t.Helper()
	p := &acl.Policy{Table: table}
	for _, g := range grants {
		var err error
		if p, err = p.Grant(g); err != nil {
			t.Fatal(err)
		}
	}
	return p.Encode()
}

// Stop makes the rights unknown until the next Set.
func (r *Rights) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true
}
