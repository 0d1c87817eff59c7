package keydir

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/security/pki"
)

const (
	nodeFile      = "node.pem"
	trustFile     = "ca.crt"
	authorityFile = "ca.key"
	nextFile      = "ca.next.key"
	gossipFile    = "gossip.key"
	joinFile      = "join.key"
)

// FirstPrincipal is the name of the principal that Init creates. It has all rights.
const FirstPrincipal = "admin"

var (
	// ErrNotEnrolled means that the node has no credential and so belongs to no cluster.
	ErrNotEnrolled = errors.New("node has no certificate of a cluster")
	// ErrExists means that there are keys already, which must not be replaced.
	ErrExists = errors.New("there are keys already")
)

const (
	gossipKeyBytes = 32
	// gossipKeysMax allows the current key, the next one, the previous one, and one spare.
	gossipKeysMax = 4
)

// Contents is the content of an enrolled node's directory.
type Contents struct {
	// Credential is that of the node.
	Credential *pki.Credential
	// Authority is that of the cluster; nil on a node that is not an issuer.
	Authority *pki.Authority
	// Next is the authority that will replace it, or nil.
	Next *pki.Authority
	// GossipKeys have 32 bytes each. The first encrypts.
	GossipKeys [][]byte
}

// Dir is the directory of a node's keys.
type Dir struct {
	fs         vfs.FS
	dir        string
	passphrase string
	readOnly   bool
}

// At returns the directory at a path of the operating system, which need not exist.
func At(dir string) Dir { return On(vfs.OS(), dir) }

// On returns the directory at a path of a file system, which need not exist.
func On(fsys vfs.FS, dir string) Dir { return Dir{fs: fsys, dir: filepath.Clean(dir)} }

// SealedBy returns the directory with the keys of authorities encrypted with a passphrase, unless that
// is empty. Load encrypts those that are not encrypted yet.
func (f Dir) SealedBy(passphrase string) Dir {
	f.passphrase = passphrase
	return f
}

// NodeFile returns the path of the node's credential, which a pki.Rotator rewrites.
func (f Dir) NodeFile() string { return filepath.Join(f.dir, nodeFile) }

// Files returns the files of the directory's file system.
func (f Dir) Files() pki.Files { return pki.On(f.fs) }

// Secrets returns the secrets of the directory's file system.
func (f Dir) Secrets() secretfile.Files { return secretfile.On(f.fs) }

func (f Dir) file(name string) string { return filepath.Join(f.dir, name) }

// Init creates a new cluster with this node as the first, and returns the credential of its first
// principal, which is not stored. hosts are the names and addresses of this host. Errors:
// ErrExists, those of package pki and of the disk.
func (f Dir) Init(node string, hosts []string, now time.Time) (*pki.Credential, error) {
	if err := f.checkFree(trustFile, authorityFile, gossipFile, nodeFile); err != nil {
		return nil, err
	}
	a, err := pki.NewAuthority(newCluster(), now)
	if err != nil {
		return nil, err
	}
	own, err := issue(a, func(r []byte) (*x509.Certificate, error) { return a.SignNode(r, node, hosts, now) })
	if err != nil {
		return nil, err
	}
	first, err := issue(a, func(r []byte) (*x509.Certificate, error) { return a.SignPrincipal(r, FirstPrincipal, 0, 0, now) })
	if err != nil {
		return nil, err
	}
	key := make([]byte, gossipKeyBytes)
	_, _ = rand.Read(key) // never fails
	return first, f.initWith(&Contents{Credential: own, Authority: a, GossipKeys: [][]byte{key}})
}

// newCluster returns a new cluster id.
func newCluster() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return "c" + hex.EncodeToString(b)
}

// issue generates a key and returns the credential with the certificate that sign returns for it.
func issue(a *pki.Authority, sign func(request []byte) (*x509.Certificate, error)) (*pki.Credential, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	request, err := pki.NewRequest(key)
	if err != nil {
		return nil, err
	}
	leaf, err := sign(request)
	if err != nil {
		return nil, err
	}
	trust, err := pki.NewTrust(a.Certificate())
	if err != nil {
		return nil, err
	}
	return pki.NewCredential(key, leaf, trust)
}

// initWith writes all files to a temporary directory and renames it, because a partial authority
// would be worse than none.
func (f Dir) initWith(c *Contents) error {
	if err := f.fs.Remove(f.dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty directory may exist
		return fmt.Errorf("replace the directory of keys: %w", err)
	}
	half := Dir{fs: f.fs, dir: f.dir + ".new", passphrase: f.passphrase}
	if err := vfs.RemoveAll(f.fs, half.dir); err != nil { // left by an interrupted Init
		return err
	}
	if err := half.write(c); err != nil {
		return err
	}
	if err := f.Files().WriteSealedAuthority(half.file(authorityFile), c.Authority, f.passphrase); err != nil {
		return err
	}
	if err := f.fs.Rename(half.dir, f.dir); err != nil {
		return err
	}
	return f.fs.SyncDir(filepath.Dir(f.dir))
}

// Enrol stores what a node received from the cluster that it joins. An interrupted call may be
// repeated, also with another credential. Errors: ErrExists if the node is enrolled, those of the
// disk.
func (f Dir) Enrol(c *Contents) error {
	if err := f.checkFree(authorityFile, nodeFile); err != nil {
		return err
	}
	if err := f.write(c); err != nil {
		return err
	}
	return f.Secrets().Remove(f.file(joinFile))
}

// Renew replaces the credential of an enrolled node that has joined its cluster again, by another
// of the same node and cluster. Errors: those of Load, and of the disk.
func (f Dir) Renew(c *Contents) error {
	old, err := f.Load()
	if err != nil {
		return err
	}
	was, is := old.Credential.Peer(), c.Credential.Peer()
	if was.Name != is.Name || was.Cluster != is.Cluster {
		return fmt.Errorf("credential of %s of cluster %s cannot replace that of %s of cluster %s", is, is.Cluster, was, was.Cluster)
	}
	if err := f.write(c); err != nil {
		return err
	}
	return f.Secrets().Remove(f.file(joinFile))
}

// JoinKey returns the key with which the node requests enrollment. It generates the key once and
// reuses it until the node is enrolled, so that a repeated request is recognized.
func (f Dir) JoinKey() (crypto.Signer, error) {
	key, err := f.Files().ReadKey(f.file(joinFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if key, err = pki.NewKey(); err != nil {
		return nil, err
	}
	return key, f.Files().WriteKey(f.file(joinFile), key)
}

// write writes the files that every node has.
func (f Dir) write(c *Contents) error {
	if p := c.Credential.Peer(); p.Kind != pki.Node {
		return fmt.Errorf("credential of %s: want that of a node", p)
	}
	lines, err := formatGossipKeys(c.GossipKeys)
	if err != nil {
		return err
	}
	if err := f.Secrets().Write(f.file(trustFile), c.Credential.Trust().PEM()); err != nil {
		return err
	}
	if err := f.Secrets().Write(f.file(gossipFile), lines); err != nil {
		return err
	}
	return f.Files().WriteCredential(f.NodeFile(), c.Credential)
}

// checkFree returns ErrExists if one of the files exists.
func (f Dir) checkFree(files ...string) error {
	for _, name := range files {
		exists, err := vfs.Exists(f.fs, f.file(name))
		if err != nil {
			return err
		}
		if exists {
			return fmt.Errorf("%w: %s: move the directory away if this node no longer belongs to a cluster", ErrExists, f.file(name))
		}
	}
	return nil
}

// SetAuthority makes the node an issuer. a must be an authority of its cluster that the node
// trusts.
func (f Dir) SetAuthority(a *pki.Authority) error {
	c, err := f.Files().ReadCredential(f.NodeFile())
	if err != nil {
		return err
	}
	if err := checkAuthority(c, a); err != nil {
		return err
	}
	return f.Files().WriteSealedAuthority(f.file(authorityFile), a, f.passphrase)
}

// SetGossipKeys replaces the gossip keys, of which the first encrypts. After an error the old ones
// remain.
func (f Dir) SetGossipKeys(keys [][]byte) error {
	lines, err := formatGossipKeys(keys)
	if err != nil {
		return err
	}
	return f.Secrets().Write(f.file(gossipFile), lines)
}

// SetNext stores the authority that will replace the current one. The node need not trust it yet.
func (f Dir) SetNext(a *pki.Authority) error {
	return f.Files().WriteSealedAuthority(f.file(nextFile), a, f.passphrase)
}

// DropNext deletes the authority of SetNext.
func (f Dir) DropNext() error { return f.Secrets().Remove(f.file(nextFile)) }

// SetTrust writes the authorities' certificates for other programs. The node's own are in its
// credential.
func (f Dir) SetTrust(t *pki.Trust) error {
	if b, err := vfs.ReadFile(f.fs, f.file(trustFile)); err == nil && bytes.Equal(b, t.PEM()) {
		return nil
	}
	return f.Secrets().Write(f.file(trustFile), t.PEM())
}

// DropAuthority makes the node stop being an issuer.
func (f Dir) DropAuthority() error {
	return errors.Join(f.Secrets().Remove(f.file(authorityFile)), f.DropNext())
}

// Load reads the directory. Errors: ErrNotEnrolled, *secretfile.ExposedError, *pki.FileError, those
// of the disk.
func (f Dir) Load() (*Contents, error) {
	c := &Contents{}
	var err error
	if c.Credential, err = f.Files().ReadCredential(f.NodeFile()); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s does not exist", ErrNotEnrolled, f.NodeFile())
	} else if err != nil {
		return nil, err
	}
	if p := c.Credential.Peer(); p.Kind != pki.Node {
		return nil, &pki.FileError{File: f.NodeFile(), Reason: "it is the credential of " + p.String() + ", not of a node"}
	}
	b, err := f.Secrets().Read(f.file(gossipFile))
	if err != nil {
		return nil, err
	}
	if c.GossipKeys, err = parseGossipKeys(b); err != nil {
		return nil, &pki.FileError{File: f.file(gossipFile), Reason: err.Error()}
	}
	if c.Next, err = f.authority(nextFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if c.Authority, err = f.authority(authorityFile); errors.Is(err, fs.ErrNotExist) {
		return c, nil
	} else if err != nil {
		return nil, err
	}
	if err := checkAuthority(c.Credential, c.Authority); err != nil {
		return nil, &pki.FileError{File: f.file(authorityFile), Reason: err.Error()}
	}
	return c, nil
}

// Check returns the error that Load would return, without changing the directory.
func (f Dir) Check() error {
	f.readOnly = true
	_, err := f.Load()
	return err
}

// authority reads an authority's key. If a passphrase is set and the key is not encrypted yet, it
// encrypts the file.
func (f Dir) authority(name string) (*pki.Authority, error) {
	a, sealed, err := f.Files().ReadSealedAuthority(f.file(name), f.passphrase)
	if errors.Is(err, pki.ErrSealed) {
		return nil, fmt.Errorf("%w: give it with --authority-passphrase-file", err)
	}
	if err == nil && f.passphrase != "" && !sealed && !f.readOnly {
		err = f.Files().WriteSealedAuthority(f.file(name), a, f.passphrase)
	}
	return a, err
}

// checkAuthority returns an error unless the node trusts the authority.
func checkAuthority(c *pki.Credential, a *pki.Authority) error {
	for _, trusted := range c.Trust().Authorities() {
		if pki.FingerprintOf(trusted) == a.Fingerprint() {
			return nil
		}
	}
	return fmt.Errorf("node does not trust the authority of cluster %s with fingerprint %s", a.Cluster(), a.Fingerprint())
}

func formatGossipKeys(keys [][]byte) ([]byte, error) {
	if len(keys) < 1 || len(keys) > gossipKeysMax {
		return nil, fmt.Errorf("%d gossip keys: want 1 to %d", len(keys), gossipKeysMax)
	}
	var b strings.Builder
	for _, k := range keys {
		if len(k) != gossipKeyBytes {
			return nil, fmt.Errorf("gossip key of %d bytes: want %d", len(k), gossipKeyBytes)
		}
		b.WriteString(hex.EncodeToString(k) + "\n")
	}
	return []byte(b.String()), nil
}

// parseGossipKeys parses what formatGossipKeys returns. No error contains any part of a key.
func parseGossipKeys(b []byte) (keys [][]byte, err error) {
	for text := range strings.FieldsSeq(string(b)) {
		k, err := hex.DecodeString(text)
		if err != nil || len(k) != gossipKeyBytes || len(keys) == gossipKeysMax {
			return nil, fmt.Errorf("want 1 to %d lines of %d hexadecimal digits", gossipKeysMax, 2*gossipKeyBytes)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no key")
	}
	return keys, nil
}
