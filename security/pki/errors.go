package pki

import (
	"errors"
	"fmt"
	"net"
)

// Why a peer is not believed. All come in a *PeerError.
var (
	// ErrNoCertificate means that the peer has shown none.
	ErrNoCertificate = errors.New("no certificate")
	// ErrExpired means that the certificate's time is over.
	ErrExpired = errors.New("certificate has expired")
	// ErrNotYetValid means that the certificate's time has not begun.
	ErrNotYetValid = errors.New("certificate is not valid yet")
	// ErrOtherCluster means that the certificate is of another cluster.
	ErrOtherCluster = errors.New("certificate is of another cluster")
	// ErrUntrusted means that the cluster's authority has not signed the certificate, or
	// not for what it is used for.
	ErrUntrusted = errors.New("certificate is not of the cluster's authority")
	// ErrNotNode means that the peer should be a node and is none.
	ErrNotNode = errors.New("not a node")
	// ErrOtherNode means that the peer is another node than the one meant.
	ErrOtherNode = errors.New("another node")
	// ErrRefused means that the peer was turned away by who asked, such as a node that
	// was removed.
	ErrRefused = errors.New("refused")
)

// ManyConnsError means that a principal has as many connections as one may have.
type ManyConnsError struct {
	Name string
	Max  int
}

func (e *ManyConnsError) Error() string {
	return fmt.Sprintf("principal %q has %d connections, and no more are taken: share them, or use several principals", e.Name, e.Max)
}

// PeerError says who was not believed, and why.
type PeerError struct {
	// Claims is who the peer says it is, which nobody has confirmed; the zero Peer if
	// that cannot be read.
	Claims Peer
	// Why is one of the errors above.
	Why error
	// Detail is the cause, if there is more to say. It may be nil.
	Detail error
}

func (e *PeerError) Error() string {
	s := e.Why.Error()
	if e.Claims.Kind != Anonymous {
		s = fmt.Sprintf("%s, which says it is %s of cluster %s", s, e.Claims, e.Claims.Cluster)
	}
	if e.Detail != nil {
		s += ": " + e.Detail.Error()
	}
	return s
}

// Unwrap returns why, and the cause.
func (e *PeerError) Unwrap() []error { return []error{e.Why, e.Detail} }

// IsAlert tells whether a connection ended by an alert of TLS: the other end does not take our
// certificate, mostly.
func IsAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // package tls does not export the type of what it wraps
}

// NameError is about a name that no certificate can be made for.
type NameError struct {
	What string // such as "name of a principal"
	Name string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("%s %q: want 1 to %d of a-z A-Z 0-9 - _ . @, the first a letter or digit", e.What, e.Name, nameBytesMax)
}

// HostError is about a name or address of a node that no certificate can hold.
type HostError struct{ Host string }

func (e *HostError) Error() string {
	return fmt.Sprintf("%q is neither the name of a host nor an IP address", e.Host)
}

// FileError is about a file of keys and certificates that cannot be used.
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
