package main

import (
	"strings"
	"testing"
)

// C5: stele.yaml(5) has all settings.
func TestManPageHasAllSettings(t *testing.T) {
	page := configManPage()
	for i := range settings {
		if s := &settings[i]; !strings.Contains(page, manText(s.variable())) {
			t.Errorf("%s: not in stele.yaml(5)", s.key)
		}
	}
}
