package folder

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/steledb/stele/internal/secretfile"
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

// FirstPrincipal is the name of the principal that Init makes: he may do everything.
const FirstPrincipal = "admin"

var (
	// ErrNotEnrolled means that the node belongs to no cluster: there is no credential.
	ErrNotEnrolled = errors.New("node has no certificate of a cluster")
	// ErrExists means that there are keys already, which are not to be replaced.
	ErrExists = errors.New("there are keys already")
)

const (
	gossipKeyBytes = 32
	// gossipKeysMax: the one in use, one that comes, one that goes, and one in hand.
	gossipKeysMax = 4
)

// Contents is what the folder of an enrolled node holds.
type Contents struct {
	// Credential is the node's.
	Credential *pki.Credential
	// Authority is nil on a node that is no issuer.
	Authority *pki.Authority
	// Next is the authority that is to replace it; nil if there is none.
	Next *pki.Authority
	// GossipKeys are of 32 bytes each; the first encrypts.
	GossipKeys [][]byte
}

// Folder is a node's.
type Folder struct {
	dir        string
	passphrase string
	readOnly   bool
}

// At returns the folder of that name. It need not be there.
func At(dir string) Folder { return Folder{dir: filepath.Clean(dir)} }

// SealedBy returns the folder with the keys of authorities encrypted by a passphrase, unless that is empty. Load encrypts those
// that are not.
func (f Folder) SealedBy(passphrase string) Folder {
	f.passphrase = passphrase
	return f
}

// NodeFile returns the name of the file with the node's credential, which a
// pki.Rotator writes anew.
func (f Folder) NodeFile() string { return filepath.Join(f.dir, nodeFile) }

func (f Folder) file(name string) string { return filepath.Join(f.dir, name) }

// Init makes a new cluster with this node as the first of it, and returns the credential
// of its first principal, which is for him alone and nowhere kept. Hosts are the names and
// addresses of this host. Errors: ErrExists, those of package pki and of the disk.
func (f Folder) Init(node string, hosts []string, now time.Time) (*pki.Credential, error) {
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

// newCluster makes the id of a cluster.
func newCluster() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	return "c" + hex.EncodeToString(b)
}

// issue makes a key, and the credential of the certificate that sign makes for it.
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

// initWith writes all files into another folder, which then gets the name of this one:
// half of an authority would be worse than none.
func (f Folder) initWith(c *Contents) error {
	if err := os.Remove(f.dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be there if it is empty
		return fmt.Errorf("make the folder of keys anew: %w", err)
	}
	half := Folder{dir: f.dir + ".new", passphrase: f.passphrase}
	if err := os.RemoveAll(half.dir); err != nil { // of an Init that was broken off
		return err
	}
	if err := half.write(c); err != nil {
		return err
	}
	if err := pki.WriteSealedAuthority(half.file(authorityFile), c.Authority, f.passphrase); err != nil {
		return err
	}
	if err := os.Rename(half.dir, f.dir); err != nil {
		return err
	}
	return secretfile.SyncDir(filepath.Dir(f.dir))
}

// Enrol keeps what a node has got from the cluster that it joins. A call that was broken
// off may be repeated, also with another credential. Errors: ErrExists if the node is
// enrolled, those of the disk.
func (f Folder) Enrol(c *Contents) error {
	if err := f.checkFree(authorityFile, nodeFile); err != nil {
		return err
	}
	if err := f.write(c); err != nil {
		return err
	}
	return secretfile.Remove(f.file(joinFile))
}

// Renew replaces the credential of a node that is enrolled, and has joined its cluster once
// more, by another of the same node and cluster. Errors: those of Load, and of the disk.
func (f Folder) Renew(c *Contents) error {
	old, err := f.Load()
	if err != nil {
		return err
	}
	was, is := old.Credential.Peer(), c.Credential.Peer()
	if was.Name != is.Name || was.Cluster != is.Cluster {
		return fmt.Errorf("the credential of %s of cluster %s cannot replace that of %s of cluster %s", is, is.Cluster, was, was.Cluster)
	}
	if err := f.write(c); err != nil {
		return err
	}
	return secretfile.Remove(f.file(joinFile))
}

// JoinKey returns the key by which the node asks to be enrolled, and makes it if there is
// none: until it is enrolled, the node asks with the same one, so that it is known when it
// asks again.
func (f Folder) JoinKey() (crypto.Signer, error) {
	key, err := pki.ReadKey(f.file(joinFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if key, err = pki.NewKey(); err != nil {
		return nil, err
	}
	return key, pki.WriteKey(f.file(joinFile), key)
}

// write writes what every node has.
func (f Folder) write(c *Contents) error {
	if p := c.Credential.Peer(); p.Kind != pki.Node {
		return fmt.Errorf("credential of a node is that of %s", p)
	}
	lines, err := formatGossipKeys(c.GossipKeys)
	if err != nil {
		return err
	}
	if err := secretfile.Write(f.file(trustFile), c.Credential.Trust().PEM()); err != nil {
		return err
	}
	if err := secretfile.Write(f.file(gossipFile), lines); err != nil {
		return err
	}
	return pki.WriteCredential(f.NodeFile(), c.Credential)
}

// checkFree returns ErrExists if there is one of the files.
func (f Folder) checkFree(files ...string) error {
	for _, name := range files {
		if _, err := os.Lstat(f.file(name)); err == nil {
			return fmt.Errorf("%w: %s; if no cluster is to have this node any more, move the folder away", ErrExists, f.file(name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// SetAuthority makes the node an issuer. It must be the authority of its cluster, one
// that the node trusts.
func (f Folder) SetAuthority(a *pki.Authority) error {
	c, err := pki.ReadCredential(f.NodeFile())
	if err != nil {
		return err
	}
	if err := checkAuthority(c, a); err != nil {
		return err
	}
	return pki.WriteSealedAuthority(f.file(authorityFile), a, f.passphrase)
}

// SetGossipKeys replaces the keys of gossip, of which the first encrypts. After an error there are those of before.
func (f Folder) SetGossipKeys(keys [][]byte) error {
	lines, err := formatGossipKeys(keys)
	if err != nil {
		return err
	}
	return secretfile.Write(f.file(gossipFile), lines)
}

// SetNext keeps the authority that is to replace the one that there is. The node need not trust it yet.
func (f Folder) SetNext(a *pki.Authority) error {
	return pki.WriteSealedAuthority(f.file(nextFile), a, f.passphrase)
}

// DropNext deletes the authority of SetNext.
func (f Folder) DropNext() error { return secretfile.Remove(f.file(nextFile)) }

// SetTrust writes the authorities' certificates for programs that are not Stele's. Those of the node are in its credential.
func (f Folder) SetTrust(t *pki.Trust) error {
	if b, err := os.ReadFile(f.file(trustFile)); err == nil && bytes.Equal(b, t.PEM()) {
		return nil
	}
	return secretfile.Write(f.file(trustFile), t.PEM())
}

// DropAuthority makes the node no issuer any more.
func (f Folder) DropAuthority() error {
	return errors.Join(secretfile.Remove(f.file(authorityFile)), f.DropNext())
}

// Load reads the folder. Errors: ErrNotEnrolled, *secretfile.ExposedError, *pki.FileError,
// those of the disk.
func (f Folder) Load() (*Contents, error) {
	c := &Contents{}
	var err error
	if c.Credential, err = pki.ReadCredential(f.NodeFile()); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s is not there", ErrNotEnrolled, f.NodeFile())
	} else if err != nil {
		return nil, err
	}
	if p := c.Credential.Peer(); p.Kind != pki.Node {
		return nil, &pki.FileError{File: f.NodeFile(), Reason: "it is the credential of " + p.String() + ", and not of a node"}
	}
	b, err := secretfile.Read(f.file(gossipFile))
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

// Check returns the error that Load would return, and changes nothing in the folder.
func (f Folder) Check() error {
	f.readOnly = true
	_, err := f.Load()
	return err
}

// authority reads an authority's key, and encrypts it if there is a passphrase and it is not encrypted yet.
func (f Folder) authority(name string) (*pki.Authority, error) {
	a, sealed, err := pki.ReadSealedAuthority(f.file(name), f.passphrase)
	if errors.Is(err, pki.ErrSealed) {
		return nil, fmt.Errorf("%w: give it with --authority-passphrase-file", err)
	}
	if err == nil && f.passphrase != "" && !sealed && !f.readOnly {
		err = pki.WriteSealedAuthority(f.file(name), a, f.passphrase)
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
	return fmt.Errorf("the authority of cluster %s, %s, is none that the node trusts", a.Cluster(), a.Fingerprint())
}

func formatGossipKeys(keys [][]byte) ([]byte, error) {
	if len(keys) < 1 || len(keys) > gossipKeysMax {
		return nil, fmt.Errorf("%d keys of gossip, want 1 to %d", len(keys), gossipKeysMax)
	}
	var b strings.Builder
	for _, k := range keys {
		if len(k) != gossipKeyBytes {
			return nil, fmt.Errorf("key of gossip has %d bytes, must have %d", len(k), gossipKeyBytes)
		}
		b.WriteString(hex.EncodeToString(k) + "\n")
	}
	return []byte(b.String()), nil
}

// parseGossipKeys reads what formatGossipKeys writes. No error holds any of it.
func parseGossipKeys(b []byte) (keys [][]byte, err error) {
	for text := range strings.FieldsSeq(string(b)) {
		k, err := hex.DecodeString(text)
		if err != nil || len(k) != gossipKeyBytes || len(keys) == gossipKeysMax {
			return nil, fmt.Errorf("want 1 to %d lines of %d hexadecimal digits", gossipKeysMax, 2*gossipKeyBytes)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no key in it")
	}
	return keys, nil
}
