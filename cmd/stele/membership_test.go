package main

import (
	"os"
	"strings"
	"testing"
)

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

// The invitation is a valid command line.
func TestInvitation(t *testing.T) {
	const flags = "--data-dir /d1 --data-dir /d2 --security-dir /keys --listen 10.0.0.5:7206 --gossip 10.0.0.5:7207 --name a"
	const want = "stele serve --data-dir /d1 --data-dir /d2 --listen 0.0.0.0:7206 --gossip 0.0.0.0:7207 --join 10.0.0.5:7206 --token-file token"
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
