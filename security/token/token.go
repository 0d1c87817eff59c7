package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/steledb/stele/security/pki"
)

// Kind is what a token is for. Its text begins with the kind, so that people, and
// programs that look for secrets that got loose, see what they have before them.
type Kind uint8

const (
	// Join lets a host become a node of the cluster.
	Join Kind = 1
	// Access proves that a client is a principal.
	Access Kind = 2
)

var (
	kindNames = [...]string{Join: "join", Access: "access"}
	prefixes  = [...]string{Join: "stele-join-", Access: "stele-access-"}
)

func (k Kind) String() string {
	if k == Join || k == Access {
		return kindNames[k]
	}
	return "unknown"
}

// ID names a token, and is no secret.
type ID [8]byte

// String returns 16 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID reads what String returns.
func ParseID(s string) (ID, error) {
	var id ID
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return ID{}, fmt.Errorf("id of a token is not %d hexadecimal digits", 2*len(id))
	}
	copy(id[:], b)
	return id, nil
}

// secretBytes: nobody guesses 128 bits, however fast the hash is.
const secretBytes = 16

// sealed is a secret that no verb of package fmt shows, not even where it is in
// somebody's unexported field, so that no method of ours is called: it would show bytes,
// and those behind a pointer.
type sealed func() [secretBytes]byte

func seal(b [secretBytes]byte) sealed { return func() [secretBytes]byte { return b } }

// Token is what its owner has. Whatever prints, logs or marshals it gets its kind and
// id alone; Reveal returns the text.
type Token struct {
	kind        Kind
	id          ID
	secret      sealed // nil in the zero Token
	fingerprint pki.Fingerprint
	ends        time.Time
}

// New makes a token with a new id and secret, for a cluster whose authority has that
// fingerprint. It ends after ttl, or never if that is zero, to the second.
func New(kind Kind, authority pki.Fingerprint, now time.Time, ttl time.Duration) Token {
	t := Token{kind: kind, fingerprint: authority}
	var secret [secretBytes]byte
	_, _ = rand.Read(t.id[:]) // never fails
	_, _ = rand.Read(secret[:])
	t.secret = seal(secret)
	if ttl > 0 {
		t.ends = time.Unix(now.Add(ttl).Unix(), 0).UTC()
	}
	return t
}

// Kind returns what the token is for.
func (t Token) Kind() Kind { return t.kind }

// ID returns the token's name.
func (t Token) ID() ID { return t.id }

// Authority returns the fingerprint of the authority of the cluster that has made the
// token: whoever uses it gives it to no other.
func (t Token) Authority() pki.Fingerprint { return t.fingerprint }

// Ends returns when the token ends, as it says itself; the zero Time is never. What
// counts is what the cluster says.
func (t Token) Ends() time.Time { return t.ends }

// hash is what the cluster keeps of a token. The kind is in it, so that no token
// passes for one of another kind.
func (t Token) hash() [sha256.Size]byte {
	h := sha256.New()
	_, _ = io.WriteString(h, "stele "+t.kind.String()+" token 1\x00")
	h.Write(t.id[:])
	if t.secret != nil {
		secret := t.secret()
		h.Write(secret[:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// String returns the kind and id.
func (t Token) String() string {
	if t.secret == nil {
		return "no token"
	}
	return prefixes[t.kind] + "… (id " + t.id.String() + ")"
}

// LogValue is String, for package slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText is String, for JSON and YAML.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

const (
	version = 1
	// bodyBytes: version, id, secret, fingerprint, end, checksum.
	bodyBytes = 1 + 8 + secretBytes + sha256.Size + 5 + 4
)

// Reveal returns the text by which the owner uses the token. It is a secret.
func (t Token) Reveal() string {
	if t.secret == nil {
		return ""
	}
	b := make([]byte, 0, bodyBytes)
	b = append(b, version)
	b = append(b, t.id[:]...)
	secret := t.secret()
	b = append(b, secret[:]...)
	b = append(b, t.fingerprint[:]...)
	ends := uint64(0)
	if !t.ends.IsZero() {
		ends = uint64(t.ends.Unix())
	}
	b = append(b, byte(ends>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(ends))
	b = binary.BigEndian.AppendUint32(b, checksum(t.kind, b))
	return prefixes[t.kind] + encodeText(b)
}
