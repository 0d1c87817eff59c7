package pki

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Kind is the kind of a peer.
type Kind uint8

const (
	// Anonymous is a peer without a certificate.
	Anonymous Kind = iota
	// Node is a node of the cluster.
	Node
	// Principal is a person or a program registered with the cluster under a name.
	Principal
)

var kindNames = [...]string{Anonymous: "anonymous", Node: "node", Principal: "principal"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Peer is the subject of a certificate.
type Peer struct {
	Kind    Kind
	Cluster string
	// Name is the node's id, or the principal's name.
	Name string
	// Generation is the principal's generation when the certificate was signed. The cluster rejects
	// generations below the principal's current one.
	Generation uint64
	// Serial is the certificate's serial number in hexadecimal.
	Serial string
	// Ends is the expiry of the certificate.
	Ends time.Time
}

// String returns "node n1", "principal ann" or "anonymous".
func (p Peer) String() string {
	if p.Kind == Anonymous {
		return p.Kind.String()
	}
	return p.Kind.String() + " " + p.Name
}

// scheme is the scheme of the URIs in certificates:
//
//	stele://<cluster>                                 the authority
//	stele://<cluster>/node/<id>                       a node
//	stele://<cluster>/principal/<name>/<generation>   a principal
const scheme = "stele"

func (p Peer) uri() *url.URL {
	u := &url.URL{Scheme: scheme, Host: p.Cluster}
	switch p.Kind {
	case Node:
		u.Path = "/node/" + p.Name
	case Principal:
		u.Path = "/principal/" + p.Name + "/" + strconv.FormatUint(p.Generation, 10)
	}
	return u
}

// peerOf returns the subject of a certificate. It does not verify the certificate.
func peerOf(c *x509.Certificate) (Peer, error) {
	u, err := onlyURI(c)
	if err != nil {
		return Peer{}, err
	}
	p := Peer{Cluster: u.Host, Ends: c.NotAfter}
	if c.SerialNumber != nil {
		p.Serial = c.SerialNumber.Text(16)
	}
	parts := strings.Split(u.Path, "/")
	switch {
	case len(parts) == 3 && parts[1] == "node":
		p.Kind, p.Name = Node, parts[2]
	case len(parts) == 4 && parts[1] == "principal":
		p.Kind, p.Name = Principal, parts[2]
		if p.Generation, err = strconv.ParseUint(parts[3], 10, 64); err != nil {
			return Peer{}, fmt.Errorf("generation %q is not a number", parts[3])
		}
	default:
		return Peer{}, fmt.Errorf("uri %q is neither a node's nor a principal's", u)
	}
	// Each peer has exactly one URI: no escapes, queries or leading zeros that other programs may
	// interpret differently.
	if !validName(p.Name) || !validName(p.Cluster) || p.uri().String() != u.String() {
		return Peer{}, fmt.Errorf("uri %q is not in canonical form", u)
	}
	return p, nil
}

// clusterOf returns the cluster of an authority's certificate.
func clusterOf(c *x509.Certificate) (string, error) {
	u, err := onlyURI(c)
	if err != nil {
		return "", err
	}
	if !validName(u.Host) || u.String() != (Peer{Cluster: u.Host}).uri().String() {
		return "", fmt.Errorf("uri %q is not a cluster authority's", u)
	}
	return u.Host, nil
}

func onlyURI(c *x509.Certificate) (*url.URL, error) {
	if len(c.URIs) != 1 || c.URIs[0].Scheme != scheme {
		return nil, fmt.Errorf("certificate does not have exactly one %s:// uri", scheme)
	}
	return c.URIs[0], nil
}

// nameBytesMax bounds the names of principals, nodes and clusters.
const nameBytesMax = 64

// CheckName returns a *NameError unless name is valid. what is the kind of name, for the error.
func CheckName(what, name string) error {
	if !validName(name) {
		return &NameError{what, name}
	}
	return nil
}

// validName allows only characters that need no escaping in URIs and in namespace paths.
func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		word := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !word && (i == 0 || c != '-' && c != '_' && c != '.' && c != '@') {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= nameBytesMax
}
