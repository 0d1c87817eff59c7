package tools

import (
	"strings"
	"testing"

	"github.com/steledb/stele/cmd/stele/config"
)

// CM5: stele.yaml(5) has all settings.
func TestManPageHasAllSettings(t *testing.T) {
	page := configManPage()
	for i := range config.Settings {
		if s := &config.Settings[i]; !strings.Contains(page, manText(s.Variable())) {
			t.Errorf("%s: not in stele.yaml(5)", s.Key)
		}
	}
}
