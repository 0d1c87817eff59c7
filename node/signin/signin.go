// Package signin finds the user of a request to the console: by a client certificate, by an access token as bearer, or by a cookie that has the token.
// The paper has no console. The package starts no goroutine; those of Clients end with Close.
//
// A browser signs in with an access token, which it keeps in a cookie, encrypted with a key that only this process has. So the node keeps no sessions,
// and a restart signs everybody out. Scripts cannot read the cookie, and browsers do not send it with requests of other sites.
//
//	SI1. Each request verifies the token again: one that was revoked or has expired is not accepted, whatever the cookie's age.
//	SI2. A cookie is accepted for cookieTime, and only by the process that made it.
package signin

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/actfor"
	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/security/pki"
)

// cookieTime is how long the cookie of the console is accepted.
const cookieTime = 12 * time.Hour

// CookieName returns the name of the cookie of the console of a node with an address. Browsers do not separate the cookies of one host by port, and tunnels
// to several nodes end at the same host.
func CookieName(nodeAddr string) string {
	sum := sha256.Sum256([]byte(nodeAddr))
	return "stele_console_" + hex.EncodeToString(sum[:4])
}

// clientsMax bounds the users of the console at one node, at the same time and a minute after.
const clientsMax = 16

// Config is what Users needs.
type Config struct {
	Open     bool // the cluster has no users
	Authz    *authz.Authorizer
	Verify   func(ctx context.Context, caller *authz.Subject, token string) error
	NodeAddr string        // of the node's own port
	Client   client.Config // of connections to nodes
}

// Users finds the users of requests. It is safe for concurrent use.
type Users struct {
	cfg     Config
	clients *actfor.Clients
	seal    cipher.AEAD
	cookie  string // its name
}

// New returns Users.
func New(cfg Config) *Users {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never returns an error
	block, _ := aes.NewCipher(key)
	seal, _ := cipher.NewGCMWithRandomNonce(block) // both fail only for other sizes
	return &Users{cfg, actfor.NewClients(actfor.Config{Addr: cfg.NodeAddr, Client: cfg.Client, Max: clientsMax}), seal, CookieName(cfg.NodeAddr)}
}

// Close closes the clients of all users. It works on nil Users.
func (u *Users) Close() {
	if u != nil {
		u.clients.Close()
	}
}

// Client returns a client of the request's user, and the function that releases it. Errors: *api.IdentityError without a valid credential; those
// of actfor.Clients.Hold.
func (u *Users) Client(r *http.Request) (*client.Client, func(), error) {
	if u.cfg.Open {
		return u.clients.Hold(r.Context(), actfor.Principal{})
	}
	s, err := u.subject(r)
	if err != nil {
		return nil, nil, err
	}
	return u.clients.Hold(r.Context(), actfor.PrincipalOf(s, net.JoinHostPort(advertise.Host(r.RemoteAddr), "0")))
}

// subject returns the user of a request.
func (u *Users) subject(r *http.Request) (*authz.Subject, error) {
	s := &authz.Subject{Peer: certs.PeerOf(r), From: r.RemoteAddr}
	switch s.Peer.Kind {
	case pki.Principal:
		err := u.cfg.Authz.Rights.RefusedNow(s.Peer)
		if err != nil {
			u.cfg.Authz.Audit.Refused(s, "console", r.URL.Path, err)
		}
		return s, err
	case pki.Node:
		return nil, &api.IdentityError{Reason: api.IdentityNone, Text: "the certificate is that of a node: use one of a user, or an access token"}
	}
	token := u.token(r)
	if token == "" {
		return nil, authz.ErrStranger
	}
	return s, u.verify(r, s, token)
}

// verify verifies a token, and logs a refusal.
func (u *Users) verify(r *http.Request, s *authz.Subject, token string) error {
	err := u.cfg.Verify(r.Context(), s, token)
	if err != nil {
		u.cfg.Authz.Audit.Refused(s, "console", r.URL.Path, err)
	}
	return err
}

// token returns the access token of a request; empty if there is none.
func (u *Users) token(r *http.Request) string {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(bearer)
	}
	cookie, err := r.Cookie(u.cookie)
	if err != nil {
		return ""
	}
	return u.unsealed(cookie.Value, time.Now())
}

// sealed returns the value of a cookie with a token.
func (u *Users) sealed(token string, now time.Time) string {
	plain := binary.BigEndian.AppendUint64(nil, uint64(now.Add(cookieTime).Unix()))
	return base64.RawURLEncoding.EncodeToString(u.seal.Seal(nil, nil, append(plain, token...), []byte(u.cookie)))
}

// unsealed returns the token of a cookie; empty if this process did not make it, or it has expired.
func (u *Users) unsealed(value string, now time.Time) string {
	b, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return ""
	}
	plain, err := u.seal.Open(nil, nil, b, []byte(u.cookie))
	if err != nil || len(plain) < 8 || now.Unix() >= int64(binary.BigEndian.Uint64(plain)) {
		return ""
	}
	return string(plain[8:])
}

// SignIn verifies a token and sets the cookie. Errors: those of Config.Verify.
func (u *Users) SignIn(w http.ResponseWriter, r *http.Request, token string) error {
	if err := u.verify(r, &authz.Subject{Peer: certs.PeerOf(r), From: r.RemoteAddr}, token); err != nil {
		return err
	}
	http.SetCookie(w, u.newCookie(r, u.sealed(token, time.Now()), int(cookieTime.Seconds())))
	return nil
}

// SignOut deletes the cookie.
func (u *Users) SignOut(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, u.newCookie(r, "", -1))
}

func (u *Users) newCookie(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: u.cookie, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: certs.IsTLS(r), SameSite: http.SameSiteStrictMode}
}
