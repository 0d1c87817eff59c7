package pki

import (
	"errors"
	"fmt"
	"net"
)

// Reasons to reject a peer. They are wrapped in a *PeerError.
var (
	// ErrNoCertificate means that the peer sent no certificate.
	ErrNoCertificate = errors.New("no certificate")
	// ErrExpired means that the certificate has expired.
	ErrExpired = errors.New("certificate has expired")
	// ErrNotYetValid means that the validity period of the certificate has not begun.
	ErrNotYetValid = errors.New("certificate is not valid yet")
	// ErrOtherCluster means that the certificate belongs to another cluster.
	ErrOtherCluster = errors.New("certificate is of another cluster")
	// ErrUntrusted means that the certificate is not signed by the cluster's authority, or not for
	// this use.
	ErrUntrusted = errors.New("certificate not signed by the cluster's authority")
	// ErrNotNode means that the peer is not a node, as required.
	ErrNotNode = errors.New("not a node")
	// ErrOtherNode means that the peer is not the intended node.
	ErrOtherNode = errors.New("another node")
	// ErrRefused means that Options.Refuse rejected the peer, for example because the node was
	// removed.
	ErrRefused = errors.New("refused")
)

// ManyConnsError means that a principal has the maximum number of connections.
type ManyConnsError struct {
	Name string
	Max  int
}

func (e *ManyConnsError) Error() string {
	return fmt.Sprintf("principal %q has %d connections, the maximum: share connections or use several principals", e.Name, e.Max)
}

// PeerError reports which peer was rejected, and why.
type PeerError struct {
	// Claims is the unverified subject of the certificate; the zero Peer if it cannot be read.
	Claims Peer
	// Why is one of the errors above.
	Why error
	// Detail is the cause, or nil.
	Detail error
}

func (e *PeerError) Error() string {
	s := e.Why.Error()
	if e.Claims.Kind != Anonymous {
		s = fmt.Sprintf("%s (claims to be %s of cluster %s)", s, e.Claims, e.Claims.Cluster)
	}
	if e.Detail != nil {
		s += ": " + e.Detail.Error()
	}
	return s
}

// Unwrap returns Why and Detail.
func (e *PeerError) Unwrap() []error { return []error{e.Why, e.Detail} }

// IsAlert reports whether a connection ended with a TLS alert from the peer, usually because it
// rejects our certificate.
func IsAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // package tls does not export the wrapped type
}

// NameError means that a name is not valid in a certificate.
type NameError struct {
	What string // such as "name of a principal"
	Name string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("%s %q: want 1 to %d of a-z A-Z 0-9 - _ . @, the first a letter or digit", e.What, e.Name, nameBytesMax)
}

// HostError means that a text is not a valid host name or IP address for a node's certificate.
type HostError struct{ Host string }

func (e *HostError) Error() string {
	return fmt.Sprintf("%q is neither a host name nor an IP address", e.Host)
}

// FileError means that a file of keys or certificates is not usable.
type FileError struct {
	File   string
	Reason string
	Err    error // may be nil
}

func (e *FileError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.File, e.Reason, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.File, e.Reason)
}

func (e *FileError) Unwrap() error { return e.Err }
