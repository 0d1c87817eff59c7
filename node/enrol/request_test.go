package enrol

import (
	"reflect"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// TestJoinRequest: a request survives the wire. Hosts of the first version send no address.
func TestJoinRequest(t *testing.T) {
	want := joinRequest{text: "token", request: []byte{1, 2}, node: "n1", hosts: []string{"a", "10.0.0.1"}, from: "10.0.0.1:7"}
	var e wire.Encoder
	want.append(&e)
	for n, from := range map[int]string{5: want.from, 4: ""} {
		var got joinRequest
		d := wire.NewDecoder(e.Bytes())
		d.Array()
		want.from = from
		if err := got.decode(&d, n); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d values: %+v, %v; want %+v", n, got, err, want)
		}
	}
	var got joinRequest
	d := wire.NewDecoder(e.Bytes())
	d.Array()
	if err := got.decode(&d, 3); err == nil {
		t.Error("three values are accepted")
	}
}

// TestTokenBounds: a token lasts an hour and enrols one host unless requested otherwise, within bounds.
func TestTokenBounds(t *testing.T) {
	if ttl, uses, err := bounds(&api.CreateTokenRequest{Kind: api.TokenJoin}); ttl != time.Hour || uses != 1 || err != nil {
		t.Errorf("%v, %d uses, %v", ttl, uses, err)
	}
	for _, r := range []api.CreateTokenRequest{
		{Kind: "access"}, {Kind: api.TokenJoin, TTL: 31 * 24 * time.Hour}, {Kind: api.TokenJoin, Uses: -1}, {Kind: api.TokenJoin, Uses: 1 << 20},
	} {
		if _, _, err := bounds(&r); err == nil {
			t.Errorf("accepted: %+v", r)
		}
	}
}
