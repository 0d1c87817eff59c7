package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadKey(t *testing.T) {
	key := bytes.Repeat([]byte{0xfb, 0xff, 1, 2}, 8)
	name := filepath.Join(t.TempDir(), "key")
	for text, ok := range map[string]bool{
		hex.EncodeToString(key) + "\n":              true,
		strings.ToUpper(hex.EncodeToString(key)):    true,
		base64.StdEncoding.EncodeToString(key):      true,
		base64.RawURLEncoding.EncodeToString(key):   true,
		hex.EncodeToString(key[1:]):                 false,
		hex.EncodeToString(key) + "00":              false,
		base64.StdEncoding.EncodeToString(key[:31]): false,
		"secret": false,
		"":       false,
		hex.EncodeToString(key) + "\n" + hex.EncodeToString(key): false,
		string(key): false,
		strings.Repeat(" ", keyFileMax) + hex.EncodeToString(key): false,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readKey(name)
		if ok && (err != nil || !bytes.Equal(got, key)) || !ok && err == nil {
			t.Errorf("%q: %x, %v", text, got, err)
		}
		if err != nil && len(text) > 5 && strings.Contains(err.Error(), strings.TrimSpace(text)[:5]) {
			t.Errorf("the error %q gives the key away", err)
		}
	}
	if err := os.WriteFile(name, []byte(hex.EncodeToString(key)), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: true, 0o440: true, 0o660: false, 0o644: false, 0o602: false, 0o604: false} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
		_, err := readKey(name)
		var exposed *exposedError
		if errors.As(err, &exposed) == ok || ok && err != nil {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

func TestMembershipAddresses(t *testing.T) {
	for text, ok := range map[string]bool{
		"10.0.0.5": true, "10.0.0.5:7106": true, "host-1": true, "host-1:1, host-2 ,[::1]:7106": true, "::1": true, "[::1]": true,
		"": false, "a,,b": false, ":7106": false, "host:port": false, "host:99999": false, "a:1:2": false,
	} {
		if err := checkJoin(text); (err == nil) != ok {
			t.Errorf("join %q: %v", text, err)
		}
	}
	for text, ok := range map[string]bool{
		"": true, "10.0.0.5": true, "host-1:7206": true, "::1": true, "0.0.0.0": false, "0.0.0.0:7106": false, "[::]:7106": false, ":7106": false,
	} {
		if err := checkAdvertise(text); (err == nil) != ok {
			t.Errorf("advertise %q: %v", text, err)
		}
	}
	for text, ok := range map[string]bool{"": true, "1": true, "5": true, "0": false, "-1": false, "five": false, "1001": false} {
		if err := checkExpect(text); (err == nil) != ok {
			t.Errorf("expect %q: %v", text, err)
		}
	}
}

// What a node tells of how others join it is a command line that is understood.
func TestInvitation(t *testing.T) {
	t.Run("open", func(t *testing.T) {
		checkInvitation(t, "--data-dir /d1 --data-dir /d2 --listen 10.0.0.5:7206 --insecure --gossip-key-file /k --name a",
			"stele serve --data-dir /d1 --data-dir /d2 --listen 0.0.0.0:7206 --gossip 0.0.0.0:7107 --insecure --gossip-key-file /k --join 10.0.0.5:7206")
	})
	t.Run("with certificates", func(t *testing.T) {
		checkInvitation(t, "--data-dir /d1 --security-dir /keys --listen 10.0.0.5:7206 --gossip 10.0.0.5:7207 --name a",
			"stele serve --data-dir /d1 --listen 0.0.0.0:7206 --gossip 0.0.0.0:7207 --join 10.0.0.5:7206 --token-file token")
	})
}

func checkInvitation(t *testing.T, flags, want string) {
	a, _, _ := testApp()
	root := a.rootCommand()
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.ParseFlags(strings.Fields("--config " + os.DevNull + " " + flags)); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(serve, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.invitation("10.0.0.5:7206"); got != want {
		t.Errorf("invitation %q, want %q", got, want)
	}
	checkExample(t, root, want)
}
