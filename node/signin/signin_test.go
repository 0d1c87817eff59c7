package signin

import (
	"strings"
	"testing"
	"time"
)

// TestCookies (SI2): a cookie has its token until it expires, and only in the process that made it; no change of it is accepted.
func TestCookies(t *testing.T) {
	u, now := New(Config{}), time.Now()
	defer u.Close()
	value := u.sealed("secret", now)
	if strings.Contains(value, "secret") || u.sealed("secret", now) == value {
		t.Errorf("cookies are not encrypted: %q", value)
	}
	if got := u.unsealed(value, now.Add(cookieTime-time.Second)); got != "secret" {
		t.Errorf("%q", got)
	}
	other := New(Config{})
	defer other.Close()
	for name, got := range map[string]string{
		"expired": u.unsealed(value, now.Add(cookieTime)), "of another process": other.unsealed(value, now), "empty": u.unsealed("", now), "no base64": u.unsealed("%", now),
	} {
		if got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for i := range value {
		b := []byte(value)
		if b[i]++; u.unsealed(string(b), now) == "secret" && i != len(value)-1 { // the last character has unused bits
			t.Errorf("byte %d changed: accepted", i)
		}
	}
}
