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

// Kind is the purpose of a token. The text of a token starts with its kind, so that people and
// secret scanners recognize it.
type Kind uint8

const (
	// Join lets a host become a node of the cluster.
	Join Kind = 1
	// Access authenticates a client as a principal.
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

// ID identifies a token. It is not secret.
type ID [8]byte

// String returns 16 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID parses what String returns.
func ParseID(s string) (ID, error) {
	var id ID
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return ID{}, fmt.Errorf("bad token id: expected %d hexadecimal digits", 2*len(id))
	}
	copy(id[:], b)
	return id, nil
}

// secretBytes is 128 bits, which cannot be guessed even with a fast hash.
const secretBytes = 16

// sealed is a secret that no verb of package fmt prints. If a Token is in an unexported field of
// another type, fmt calls none of its methods. It would then print a byte slice, also behind a
// pointer, but not the captured value of a func.
type sealed func() [secretBytes]byte

func seal(b [secretBytes]byte) sealed { return func() [secretBytes]byte { return b } }

// Token is the owner's side of a token. Printing, logging or marshalling it shows only its kind and
// id; Reveal returns the text.
type Token struct {
	kind        Kind
	id          ID
	secret      sealed // nil in the zero Token
	fingerprint pki.Fingerprint
	ends        time.Time
}

// New creates a token with a new id and secret, for the cluster whose authority has that
// fingerprint. It expires after ttl, rounded to seconds, or never if ttl is zero.
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

// Kind returns the purpose of the token.
func (t Token) Kind() Kind { return t.kind }

// ID returns the token's id.
func (t Token) ID() ID { return t.id }

// Authority returns the fingerprint of the authority of the token's cluster. The token must not be
// sent to any other.
func (t Token) Authority() pki.Fingerprint { return t.fingerprint }

// Ends returns the expiry stated in the token; the zero Time means never. The cluster's record is
// authoritative.
func (t Token) Ends() time.Time { return t.ends }

// hash is the form of a token that the cluster stores. It covers the kind, so that a token cannot
// be used as one of another kind.
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

// LogValue implements slog.LogValuer with String.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText implements encoding.TextMarshaler with String.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

const (
	version = 1
	// bodyBytes is the size of version, id, secret, fingerprint, expiry and checksum.
	bodyBytes = 1 + 8 + secretBytes + sha256.Size + 5 + 4
)

// Reveal returns the text of the token, which is secret.
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
