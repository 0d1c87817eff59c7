package config

import (
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
