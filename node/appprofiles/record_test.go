package appprofiles

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/steledb/stele/client/api"
)

// TestGoldenRecord: records are read as they were written by every version, and their etags stay.
func TestGoldenRecord(t *testing.T) {
	for _, x := range []struct {
		profile api.AppProfile
		hex     string
	}{
		{api.AppProfile{ID: "batch", Description: "nightly", Routing: api.RoutingSingle, Transactional: true, Priority: api.PriorityLow, Etag: "06ee615e87f79511"},
			"9601a76e696768746c79a673696e676c65c3c2a36c6f77"},
		{api.AppProfile{ID: "web", Routing: api.RoutingByRow, NamesCluster: true, Priority: api.PriorityMedium, Etag: "1a94a38131733afc"}, "9601a0a7616e795f726f77c2c3a66d656469756d"},
	} {
		b := encode(&x.profile)
		if got := hex.EncodeToString(b); got != x.hex {
			t.Errorf("%+v is written as %s, want %s", x.profile, got, x.hex)
		}
		if got, err := decode(x.profile.ID, b); err != nil || *got != x.profile {
			t.Errorf("%+v reads as %+v, %v", x.profile, got, err)
		}
		longer := append([]byte{b[0] + 1}, b[1:]...) // a later version appends
		if got, err := decode(x.profile.ID, append(longer, 0x05)); err != nil || got.Routing != x.profile.Routing {
			t.Errorf("%+v with more behind reads as %+v, %v", x.profile, got, err)
		}
		for n := range b {
			if _, err := decode("x", b[:n]); err == nil {
				t.Errorf("%d of %d bytes of a record are read", n, len(b))
			}
		}
	}
}

// TestRecordLimits: a record that no request could have made is not read.
func TestRecordLimits(t *testing.T) {
	for what, p := range map[string]api.AppProfile{
		"routing":     {Routing: "far", Priority: api.PriorityLow},
		"priority":    {Routing: api.RoutingAny, Priority: "most"},
		"transaction": {Routing: api.RoutingAny, Transactional: true, Priority: api.PriorityLow},
		"cluster":     {Routing: api.RoutingSingle, NamesCluster: true, Priority: api.PriorityLow},
		"length":      {Routing: api.RoutingAny, Priority: api.PriorityLow, Description: strings.Repeat("x", api.AppProfileDescriptionBytes+1)},
	} {
		if got, err := decode("x", encode(&p)); err == nil {
			t.Errorf("%s: %+v is read", what, got)
		}
	}
}
