package fsm

import (
	"errors"
	"strings"
	"testing"

	"github.com/steledb/stele/raftmeta/api"
)

func TestPathRules(t *testing.T) {
	long := strings.Repeat("n", NameBytesMax)
	for _, tc := range []struct {
		path   string
		reason string // a substring; empty for a valid path
	}{
		{"/a", ""},
		{"/tables/web.table_1", ""},
		{"/räume/日本", ""},
		{"/with space", ""},
		{"/.hidden/...", ""},
		{"/" + long, ""},
		{strings.Repeat("/n", PathDepthMax), ""},
		{"", "is empty"},
		{"a", "does not begin"},
		{"a/b", "does not begin"},
		{"//", "empty name"},
		{"/a/", "slash at its end"},
		{"/a//b", "empty name"},
		{"/.", `name "."`},
		{"/a/../b", `name ".."`},
		{"/a\x00b", "control character"},
		{"/a\nb", "control character"},
		{"/a\x7f", "control character"},
		{"/\xff", "not UTF-8"},
		{"/" + long + "n", "name longer than 255 bytes"},
		{strings.Repeat("/n", PathDepthMax+1), "deeper than 16 names"},
		{strings.Repeat("/"+long, 5), "longer than 1024 bytes"},
	} {
		err := CheckFile(tc.path)
		if tc.reason == "" {
			if err != nil {
				t.Errorf("%q: %v", tc.path, err)
			}
			continue
		}
		var pe *api.PathError
		if !errors.As(err, &pe) || !errors.Is(err, api.ErrBadPath) || !strings.Contains(pe.Reason, tc.reason) {
			t.Errorf("%q: got %v, want a api.PathError that says %q", tc.path, err, tc.reason)
		}
	}
	if err := CheckDir("/"); err != nil {
		t.Errorf("the root is no directory: %v", err)
	}
	if err := CheckFile("/"); !errors.Is(err, api.ErrBadPath) {
		t.Errorf("the root may be a file: %v", err)
	}
}

func TestSplit(t *testing.T) {
	for _, tc := range [][3]string{{"/", "", ""}, {"/a", "/", "a"}, {"/a/b", "/a", "b"}, {"/a/b/c", "/a/b", "c"}} {
		if dir, name := split(tc[0]); dir != tc[1] || name != tc[2] {
			t.Errorf("split %q: %q, %q", tc[0], dir, name)
		}
	}
}
