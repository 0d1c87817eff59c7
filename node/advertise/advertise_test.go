package advertise

import (
	"net"
	"testing"
)

func TestAddress(t *testing.T) {
	for _, c := range []struct{ listen, advertise, want string }{
		{"10.0.0.1:7106", "", "10.0.0.1:7106"},
		{"localhost:7106", "", "localhost:7106"},
		{"0.0.0.0:7106", "db1", "db1:7106"},
		{"0.0.0.0:7106", "db1:9", "db1:9"},
		{"0.0.0.0:7106", "db1:0", "db1:7106"},
		{"[::]:7106", "::1", "[::1]:7106"},
		{"[::]:7106", "[fd00::1]:9", "[fd00::1]:9"},
		{"0.0.0.0:7106", "0.0.0.0", ""},
		{"0.0.0.0:7106", "::", ""},
		{"0.0.0.0:7106", "a:b:c", ""},
		{"nowhere", "", ""},
	} {
		got, err := Address(c.listen, c.advertise)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("listen %q, advertise %q: got %q, %v, want %q", c.listen, c.advertise, got, err, c.want)
		}
	}
	for _, listen := range []string{"0.0.0.0:7", "[::]:7", ":7"} {
		got, err := Address(listen, "")
		host, port, _ := net.SplitHostPort(got)
		if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() || port != "7" {
			t.Errorf("%q: got %q, %v", listen, got, err)
		}
	}
}

func TestChoose(t *testing.T) {
	var addrs []net.Addr
	for _, c := range []struct{ add, want string }{ // each better than the previous ones
		{"fe80::1/64", "<nil>"}, {"::1/128", "::1"}, {"127.0.0.1/8", "127.0.0.1"}, {"2001:db8::1/64", "2001:db8::1"},
		{"203.0.113.7/24", "203.0.113.7"}, {"fd00::1/64", "fd00::1"}, {"10.0.0.1/8", "10.0.0.1"}, {"192.168.0.1/24", "10.0.0.1"},
	} {
		ip, n, err := net.ParseCIDR(c.add)
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, &net.IPNet{IP: ip, Mask: n.Mask})
		if got := choose(addrs, false); got.String() != c.want {
			t.Errorf("with %s: got %v, want %s", c.add, got, c.want)
		}
	}
	if got := choose(addrs[:2], true); got != nil {
		t.Errorf("for IPv4: got %v", got)
	}
}
