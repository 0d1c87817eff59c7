package pki

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Kind is what a peer is.
type Kind uint8

const (
	// Anonymous has shown no certificate.
	Anonymous Kind = iota
	// Node is a node of the cluster.
	Node
	// Principal is a person or program that the cluster knows by name.
	Principal
)

var kindNames = [...]string{Anonymous: "anonymous", Node: "node", Principal: "principal"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Peer is who a certificate says its holder is.
type Peer struct {
	Kind    Kind
	Cluster string
	// Name is the node's id, or the principal's name.
	Name string
	// Generation is that of the principal when the certificate was signed: the cluster
	// turns down those of lower generations than the principal has by now.
	Generation uint64
	// Serial is the certificate's number in hexadecimal, for logs.
	Serial string
	// Ends is when the certificate expires.
	Ends time.Time
}

// String is for people and logs: "node n1", "principal ann" or "anonymous".
func (p Peer) String() string {
	if p.Kind == Anonymous {
		return p.Kind.String()
	}
	return p.Kind.String() + " " + p.Name
}

// scheme is that of the URIs in certificates:
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

// peerOf reads who a certificate is of. It does not verify anything.
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
			return Peer{}, fmt.Errorf("generation %q is no number", parts[3])
		}
	default:
		return Peer{}, fmt.Errorf("uri %q is of neither a node nor a principal", u)
	}
	// One text for one peer: no escapes, queries or spare zeros that others read otherwise.
	if !validName(p.Name) || !validName(p.Cluster) || p.uri().String() != u.String() {
		return Peer{}, fmt.Errorf("uri %q is not in its one form", u)
	}
	return p, nil
}

// clusterOf reads which cluster an authority's certificate is of.
func clusterOf(c *x509.Certificate) (string, error) {
	u, err := onlyURI(c)
	if err != nil {
		return "", err
	}
	if !validName(u.Host) || u.String() != (Peer{Cluster: u.Host}).uri().String() {
		return "", fmt.Errorf("uri %q is not that of a cluster's authority", u)
	}
	return u.Host, nil
}

func onlyURI(c *x509.Certificate) (*url.URL, error) {
	if len(c.URIs) != 1 || c.URIs[0].Scheme != scheme {
		return nil, fmt.Errorf("certificate has not one %s:// uri", scheme)
	}
	return c.URIs[0], nil
}

// nameBytesMax bounds names of principals, nodes and clusters.
const nameBytesMax = 64

// CheckName returns a *NameError if nothing of the kind that what says can have that name.
func CheckName(what, name string) error {
	if !validName(name) {
		return &NameError{what, name}
	}
	return nil
}

// validName allows what stands for itself in URIs and in paths of the namespace.
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
