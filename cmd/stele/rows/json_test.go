package rows

import (
	"testing"
	"time"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/internal/webload"
)

func TestLoadJSON(t *testing.T) {
	for name, s := range map[string]*webload.Stats{"load": {}, "load-failed": clitest.Fill(&webload.Stats{})} {
		clitest.Golden(t, name, func(a *cli.App) error {
			err := reportLoad(a, &loadFlags{table: "t"}, *s, 9, 1500*time.Millisecond, nil)
			if (err != nil) != (s.Failed > 0) {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		})
	}
	clitest.Golden(t, "verification", func(a *cli.App) error {
		if reportVerification(a, "t", *clitest.Fill(&webload.Verification{}), 1500*time.Millisecond) == nil {
			t.Error("no error, want one for lost cells")
		}
		return nil
	})
}
